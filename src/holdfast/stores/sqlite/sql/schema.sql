-- The key of every row of a thread is `thread_no << 32 | seq`. So the rows of a thread are stored together and in
-- order, and need no further index. Text is stored as UTF-8 blobs (lone surrogates are allowed) and compared by bytes.

-- One row per thread. Thread numbers grow: the threads used last share pages of every table. A number is never reused
-- (AUTOINCREMENT), so references to a dropped thread find nothing. `name` and `name_digest` are NULL if the thread was
-- dropped and its row stays only for cells that forks use. `fence` is the fence of the thread's run while it is running,
-- NULL if there is no run or it is completed, and negative otherwise: a save compares it. The checksum covers all
-- columns but `name_digest` and the number of deleted checkpoints, which a save does not know. `deleted_checksum` covers
-- that number, and whether the thread has a run, completed or not.
CREATE TABLE thread (
    thread_no INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace BLOB NOT NULL,
    name BLOB,
    name_digest BLOB,
    head INTEGER NOT NULL,
    move INTEGER NOT NULL,
    last INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    deleted_checksum INTEGER NOT NULL,
    head_id BLOB NOT NULL,
    fence INTEGER,
    step INTEGER NOT NULL,
    status BLOB NOT NULL,
    agent BLOB,
    size INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

-- Two ways to find a thread that share no page. A thread counts as missing only if both agree.
CREATE UNIQUE INDEX thread_by_name ON thread (namespace, name);
CREATE UNIQUE INDEX thread_by_digest ON thread (name_digest) WHERE name_digest IS NOT NULL;

-- One row per save. Columns for listings come first, so that a listing does not read the overflow pages of a large row.
-- The new cells come last. They are NULL if there are none or if a merged segment holds them.
CREATE TABLE checkpoint (
    row_key INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    label BLOB,
    head BLOB NOT NULL,
    meta BLOB NOT NULL,
    refs BLOB NOT NULL,
    skeleton BLOB NOT NULL,
    cells BLOB
) STRICT;

CREATE INDEX checkpoint_by_label ON checkpoint (row_key >> 32, label) WHERE label IS NOT NULL;

-- Merged segments, keyed by their last commit; `first_seq` is the first one. Ranges of a thread do not overlap.
CREATE TABLE segment (
    row_key INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL,
    cells BLOB NOT NULL
) STRICT;

-- Rewinds. A save is a move, too; its number is in the checkpoint.
CREATE TABLE move (
    row_key INTEGER PRIMARY KEY,
    head INTEGER NOT NULL,
    made_at INTEGER NOT NULL
) STRICT;

-- `thread` uses cells of `origin`.
CREATE TABLE fork (
    origin INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    PRIMARY KEY (origin, thread)
) STRICT, WITHOUT ROWID;

CREATE INDEX fork_by_thread ON fork (thread, origin);

-- At most one row per thread. `status`, `fence`, `updated_at` and `clock` repeat fields of the record; so do `wake_at`
-- and `wake_wall` if the run waits for a time, otherwise they are 0. `handler` is the name of the handler that workers
-- claim the run for. `rank` is the negative priority. `ready` is 1 if a worker may claim the run at once, otherwise 0.
-- `lease_until` is not in the record: a renewal changes it alone, and `lease_checksum` covers it. `entries` is the number
-- of journal entries, so that a lost newest entry is noticed. The checksum covers all columns except `lease_until`,
-- `lease_checksum` and `entries`.
CREATE TABLE run (
    thread_no INTEGER PRIMARY KEY,
    namespace BLOB NOT NULL,
    status BLOB NOT NULL,
    fence INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    clock BLOB NOT NULL,
    wake_at INTEGER NOT NULL,
    wake_wall INTEGER NOT NULL,
    handler BLOB,
    rank INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    lease_checksum INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    record BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

-- Runs by status, oldest first: waiting and ended runs do not slow down the search for queued ones.
CREATE INDEX run_by_status ON run (namespace, status, updated_at, thread_no);

-- Runs that workers may claim at once, in the order in which they do.
CREATE INDEX run_queue ON run (namespace, handler, rank, updated_at, thread_no) WHERE ready = 1;

-- Runs that wait for a time, ordered per clock and priority. If a clock no longer exists, the order is that of the wall
-- clock.
CREATE INDEX run_waking ON run (namespace, clock, rank, wake_at) WHERE wake_at > 0;
CREATE INDEX run_waking_by_wall ON run (namespace, clock, rank, wake_wall) WHERE wake_at > 0;

-- The journal, keyed by `thread_no << 32 | number`. `topic` repeats the topic of the record, if it has one.
CREATE TABLE entry (
    row_key INTEGER PRIMARY KEY,
    record BLOB NOT NULL,
    topic BLOB
) STRICT;

CREATE INDEX entry_by_topic ON entry (topic) WHERE topic IS NOT NULL;

-- Acts that calls have claimed: by key, the journal entry that holds the claim. A row outlives its thread: the act has
-- happened. The checksum covers all other columns.
CREATE TABLE act (
    namespace BLOB NOT NULL,
    key BLOB NOT NULL,
    thread_no INTEGER NOT NULL,
    number INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;

-- The newest limited claims for each handler that has a limit: `claims` is a window of times, with a checksum.
CREATE TABLE claim_limit (
    namespace BLOB NOT NULL,
    handler BLOB NOT NULL,
    claims BLOB,
    PRIMARY KEY (namespace, handler)
) STRICT, WITHOUT ROWID;

-- The last sweep of each thread. `state` is the state of the thread and its forks when the thread was marked as unswept
-- (see `changed_since_sweep`). If the state is another one now, the thread must be swept again. `blobs` are the digests
-- of the blobs that the thread uses. `checksum` is NULL while the thread is unswept. A sweep counts only if its horizon
-- is `last` or later. A new thread has no row.
CREATE TABLE sweep (
    thread_no INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    last INTEGER NOT NULL,
    blobs BLOB NOT NULL,
    checksum INTEGER
) STRICT;

CREATE TABLE blob (
    blob_no INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace BLOB NOT NULL,
    digest BLOB NOT NULL,
    pieces INTEGER NOT NULL,
    stamp INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX blob_by_digest ON blob (namespace, digest);

-- Keyed by `blob_no << 24 | index`. `size` is the size before compression, 0 if the piece is stored raw.
CREATE TABLE piece (
    piece_key INTEGER PRIMARY KEY,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- The epoch of each namespace that has blobs.
CREATE TABLE epoch (
    namespace BLOB PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Data keys of encrypted namespaces, each wrapped by the user's key `name`. Encrypted data refers to its key by `id`.
-- The key of a thread is removed with the thread's row.
CREATE TABLE data_key (
    namespace BLOB NOT NULL,
    id BLOB NOT NULL,
    name BLOB NOT NULL,
    wrapped BLOB NOT NULL,
    thread_no INTEGER
) STRICT;

CREATE UNIQUE INDEX data_key_by_id ON data_key (namespace, id);
CREATE INDEX data_key_by_thread ON data_key (thread_no) WHERE thread_no IS NOT NULL;
