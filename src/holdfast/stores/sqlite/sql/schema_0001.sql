-- Every key of a thread's rows is `thread_no << 32 | seq`: rows of a thread lie together, in order, and no table but
-- `thread` needs an index of its own. Text is stored as UTF-8 blobs (lone surrogates passed through), compared by bytes.

-- One row per thread. AUTOINCREMENT: a number is never given out twice, so what names a dropped thread finds nothing.
-- `name` and `name_hash` are NULL once the thread is dropped and stays only for the cells its forks use.
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

-- Two ways to find a thread that share no page: "there is none" is only believed if both say so.
CREATE UNIQUE INDEX thread_by_name ON thread (namespace, name);
CREATE INDEX thread_by_hash ON thread (name_hash) WHERE name_hash IS NOT NULL;

-- One row per save. What a listing shows comes first, so that it does not follow the overflow chain of a large row;
-- the new cells ride at the end, and are NULL when there are none or when a merged segment has them.
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

-- Merged segments, keyed by the last commit inside; `first_seq` is the first. Ranges of a thread do not overlap.
CREATE TABLE segment (
    row_key INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL,
    cells BLOB NOT NULL
) STRICT;

-- Rewinds. A save is a move, too, which its checkpoint names.
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

-- At most one row per thread, replaced as a whole: the only record that changes. `status` and `updated_at` repeat what
-- the record says, for the indexes; `wake_clock`, `wake_at` and `wake_wall` do where the run waits for a time, and are
-- empty and 0 where it does not. `entries` counts those of its journal: the newest cannot be lost unnoticed. The checksum
-- covers all.
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

-- What workers look for, oldest first. Runs that ended are many and not in it.
CREATE INDEX run_open ON run (namespace, updated_at, thread_no) WHERE status IN ('queued', 'running', 'waiting');

-- Runs that wait for a time. Each clock has its own order; on one that is gone, it is that of the wall clock.
CREATE INDEX run_waking ON run (namespace, wake_clock, wake_at) WHERE wake_at > 0;
CREATE INDEX run_waking_by_wall ON run (namespace, wake_clock, wake_wall) WHERE wake_at > 0;

-- The journal, keyed by `thread_no << 32 | number`. `mark` repeats that of the record, for the few that have one.
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

-- Keyed by `value_no << 24 | index`. `size` is that of the bytes before compression, 0 where they are stored raw.
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
