-- Every key of a thread's rows is `thread_no << 32 | seq`, as in the SQLite store: rows of a thread lie together, in
-- order. Text is stored as UTF-8 bytes (lone surrogates passed through): compared by bytes whatever the database's
-- collation, and free to hold NUL. `hf.` stands for the store's schema.

-- Where the store stands: `format` is the version of this schema, `epoch` that of shared values.

-- A number is never given out twice, so what names a dropped thread finds nothing. At most 2**31 - 1: it is the upper
-- half of a signed key.
CREATE SEQUENCE IF NOT EXISTS hf.thread_number MAXVALUE 2147483647;
CREATE SEQUENCE IF NOT EXISTS hf.value_number;

-- One row per thread, changed by every save: half of each page is left free, so that a new version of a row lies beside
-- the old one and no index is touched. `name`, `name_hash` and `name_digest` are NULL once the thread is dropped and
-- stays only for the cells its forks use. `version` grows with every change of the row, and whatever changes the status
-- or the fence of the thread's run changes this row, too: who finds the version he knows knows all of both.
CREATE TABLE IF NOT EXISTS hf.thread (
    thread_no bigint PRIMARY KEY,
    namespace bytea NOT NULL,
    name bytea,
    name_hash bigint,
    created_at bigint NOT NULL,
    head bigint NOT NULL,
    move bigint NOT NULL,
    last bigint NOT NULL,
    count bigint NOT NULL,
    head_id bytea NOT NULL,
    step bigint NOT NULL,
    status bytea NOT NULL,
    agent bytea,
    size bigint NOT NULL,
    updated_at bigint NOT NULL,
    checksum bigint NOT NULL,
    version bigint NOT NULL,
    name_digest bytea
) WITH (fillfactor = 50);

-- Two ways to find a thread that share no page: "there is none" is only believed if both say so. A name may be longer
-- than a key of an index: one has its beginning, the other its digest, which also keeps it from being given twice.
CREATE INDEX IF NOT EXISTS thread_by_name ON hf.thread (namespace, substr(name, 1, 1024)) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS thread_by_digest ON hf.thread (name_digest);

-- One row per save. The new cells are NULL when there are none or when a merged segment has them.
CREATE TABLE IF NOT EXISTS hf.checkpoint (
    row_key bigint PRIMARY KEY,
    step bigint NOT NULL,
    label bytea,
    head bytea NOT NULL,
    meta bytea NOT NULL,
    refs bytea NOT NULL,
    skeleton bytea NOT NULL,
    cells bytea
);

CREATE INDEX IF NOT EXISTS checkpoint_by_label ON hf.checkpoint (substr(label, 1, 1024), row_key)
WHERE label IS NOT NULL;

-- Merged segments, keyed by the last commit inside; `first_seq` is the first. Ranges of a thread do not overlap.
CREATE TABLE IF NOT EXISTS hf.segment (
    row_key bigint PRIMARY KEY,
    first_seq bigint NOT NULL,
    cells bytea NOT NULL
);

-- Rewinds. A save is a move, too, which its checkpoint names.
CREATE TABLE IF NOT EXISTS hf.move (
    row_key bigint PRIMARY KEY,
    head bigint NOT NULL,
    made_at bigint NOT NULL
);

-- `thread` uses cells of `origin`.
CREATE TABLE IF NOT EXISTS hf.fork (
    origin bigint NOT NULL,
    thread bigint NOT NULL,
    PRIMARY KEY (origin, thread)
);

CREATE INDEX IF NOT EXISTS fork_by_thread ON hf.fork (thread, origin);

-- At most one row per thread, replaced as a whole. `status` and `updated_at` repeat what the record says, for the
-- indexes; `wake_clock`, `wake_at` and `wake_wall` do where the run waits for a time, and are empty and 0 where it does
-- not. `entries` counts those of its journal: the newest cannot be lost unnoticed. The checksum covers all but
-- `version`, which grows with every change of the row.
CREATE TABLE IF NOT EXISTS hf.run (
    thread_no bigint PRIMARY KEY,
    namespace bytea NOT NULL,
    status bytea NOT NULL,
    updated_at bigint NOT NULL,
    wake_clock bytea NOT NULL,
    wake_at bigint NOT NULL,
    wake_wall bigint NOT NULL,
    entries bigint NOT NULL,
    record bytea NOT NULL,
    checksum bigint NOT NULL,
    version bigint NOT NULL
) WITH (fillfactor = 50);

-- What workers look for, oldest first: ten thousand runs that wait are not between a worker and one that is queued.
CREATE INDEX IF NOT EXISTS run_by_status ON hf.run (namespace, status, updated_at, thread_no);

-- Runs that wait for a time. Each clock has its own order; on one that is gone, it is that of the wall clock.
CREATE INDEX IF NOT EXISTS run_waking ON hf.run (namespace, wake_clock, wake_at, thread_no) WHERE wake_at > 0;
CREATE INDEX IF NOT EXISTS run_waking_by_wall ON hf.run (namespace, wake_clock, wake_wall, thread_no)
WHERE wake_at > 0;

-- The journal, keyed by `thread_no << 32 | number`. `mark` repeats that of the record, for the few that have one.
CREATE TABLE IF NOT EXISTS hf.effect (
    row_key bigint PRIMARY KEY,
    record bytea NOT NULL,
    mark bytea
);

CREATE INDEX IF NOT EXISTS effect_marked ON hf.effect (substr(mark, 1, 1024), row_key) WHERE mark IS NOT NULL;

CREATE TABLE IF NOT EXISTS hf.value (
    value_no bigint PRIMARY KEY,
    namespace bytea NOT NULL,
    digest bytea NOT NULL,
    pieces bigint NOT NULL,
    stamp bigint NOT NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS value_by_digest ON hf.value (namespace, digest);

-- Keyed by `value_no << 24 | index`. `size` is that of the bytes before compression, 0 where they are stored raw.
CREATE TABLE IF NOT EXISTS hf.value_piece (
    piece_key bigint PRIMARY KEY,
    size bigint NOT NULL,
    data bytea NOT NULL
);

INSERT INTO hf.setting (name, value) VALUES ('epoch', 1) ON CONFLICT (name) DO NOTHING;
