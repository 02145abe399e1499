-- The key of every row of a thread is `thread_no << 32 | seq`. So the rows of a thread are stored together and in
-- order, and need no further index. Text is stored as UTF-8 blobs (lone surrogates are allowed) and compared by bytes.

-- One row per thread. AUTOINCREMENT: a number is never reused, so references to a dropped thread find nothing. `name`
-- and `name_hash` are NULL if the thread was dropped and its row stays only for cells that forks use.
CREATE TABLE thread (
    thread_no INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace BLOB NOT NULL,
    name BLOB,
    name_hash INTEGER,
    created_at INTEGER NOT NULL,
    head INTEGER NOT NULL,
    move INTEGER NOT NULL,
    last INTEGER NOT NULL,
    count INTEGER NOT NULL,
    head_id BLOB NOT NULL,
    step INTEGER NOT NULL,
    status BLOB NOT NULL,
    agent BLOB,
    size INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

-- Two ways to find a thread that share no page. A thread counts as missing only if both agree.
CREATE UNIQUE INDEX thread_by_name ON thread (namespace, name);
CREATE INDEX thread_by_hash ON thread (name_hash) WHERE name_hash IS NOT NULL;

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

-- At most one row per thread, replaced as a whole. `status` and `updated_at` repeat fields of the record, for the
-- indexes. So do `wake_clock`, `wake_at` and `wake_wall` if the run waits for a time; otherwise they are empty and 0.
-- `entries` is the number of journal entries, so that a lost newest entry is noticed. The checksum covers all columns.
CREATE TABLE run (
    thread_no INTEGER PRIMARY KEY,
    namespace BLOB NOT NULL,
    status TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    wake_clock BLOB NOT NULL,
    wake_at INTEGER NOT NULL,
    wake_wall INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    record BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

-- The runs that workers look for, oldest first. Ended runs are many and not in this index.
CREATE INDEX run_open ON run (namespace, updated_at, thread_no) WHERE status IN ('queued', 'running', 'waiting');

-- Runs that wait for a time, ordered per clock. If a clock no longer exists, the order is that of the wall clock.
CREATE INDEX run_waking ON run (namespace, wake_clock, wake_at) WHERE wake_at > 0;
CREATE INDEX run_waking_by_wall ON run (namespace, wake_clock, wake_wall) WHERE wake_at > 0;

-- The journal, keyed by `thread_no << 32 | number`. `mark` repeats the topic of the record, if it has one.
CREATE TABLE effect (
    row_key INTEGER PRIMARY KEY,
    record BLOB NOT NULL,
    mark BLOB
) STRICT;

CREATE INDEX effect_marked ON effect (mark) WHERE mark IS NOT NULL;

CREATE TABLE value (
    value_no INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace BLOB NOT NULL,
    digest BLOB NOT NULL,
    pieces INTEGER NOT NULL,
    stamp INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX value_by_digest ON value (namespace, digest);

-- Keyed by `value_no << 24 | index`. `size` is the size before compression, 0 if the piece is stored raw.
CREATE TABLE value_piece (
    piece_key INTEGER PRIMARY KEY,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO setting (name, value) VALUES ('epoch', 1);
