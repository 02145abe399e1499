-- The key of every row of a thread is `thread_no << 32 | seq`, as in the SQLite store. So the rows of a thread are
-- stored together and in order. Text is stored as UTF-8 bytes (lone surrogates are allowed): it is compared by bytes,
-- whatever the database's collation, and may contain NUL. `hf.` is replaced by the store's schema.

-- Settings of the store: `format` is the version of this schema, `epoch` that of blobs.

-- A number is never reused, so references to a dropped thread find nothing. At most 2**31 - 1, because it is the upper
-- half of a signed key.
CREATE SEQUENCE IF NOT EXISTS hf.thread_number MAXVALUE 2147483647;
CREATE SEQUENCE IF NOT EXISTS hf.value_number;

-- One row per thread, changed by every save. Half of each page is left free, so that a new version of a row fits on the
-- same page and no index is touched. `name`, `name_hash` and `name_digest` are NULL if the thread was dropped and its
-- row stays only for cells that forks use. `version` increases with every change of the row. Every change of the status
-- or fence of the thread's run changes this row, too, so a writer that knows the current version knows both rows.
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

-- Two ways to find a thread that share no page. A thread counts as missing only if both agree. A name may be longer
-- than an index key, so one index has its start and the other its digest, which also keeps names unique.
CREATE INDEX IF NOT EXISTS thread_by_name ON hf.thread (namespace, substr(name, 1, 1024)) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS thread_by_digest ON hf.thread (name_digest);

-- One row per save. The new cells are NULL if there are none or if a merged segment holds them.
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

-- Merged segments, keyed by their last commit; `first_seq` is the first one. Ranges of a thread do not overlap.
CREATE TABLE IF NOT EXISTS hf.segment (
    row_key bigint PRIMARY KEY,
    first_seq bigint NOT NULL,
    cells bytea NOT NULL
);

-- Rewinds. A save is a move, too; its number is in the checkpoint.
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

-- At most one row per thread, replaced as a whole. `status` and `updated_at` repeat fields of the record, for the
-- indexes. So do `wake_clock`, `wake_at` and `wake_wall` if the run waits for a time; otherwise they are empty and 0.
-- `entries` is the number of journal entries, so that a lost newest entry is noticed. The checksum covers all columns
-- but `version`, which increases with every change of the row.
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

-- The runs that workers look for, oldest first. Ordered by status, so that waiting runs do not slow down the search for
-- queued ones.
CREATE INDEX IF NOT EXISTS run_by_status ON hf.run (namespace, status, updated_at, thread_no);

-- Runs that wait for a time, ordered per clock. If a clock no longer exists, the order is that of the wall clock.
CREATE INDEX IF NOT EXISTS run_waking ON hf.run (namespace, wake_clock, wake_at, thread_no) WHERE wake_at > 0;
CREATE INDEX IF NOT EXISTS run_waking_by_wall ON hf.run (namespace, wake_clock, wake_wall, thread_no)
WHERE wake_at > 0;

-- The journal, keyed by `thread_no << 32 | number`. `mark` repeats the topic of the record, if it has one.
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

-- Keyed by `value_no << 24 | index`. `size` is the size before compression, 0 if the piece is stored raw.
CREATE TABLE IF NOT EXISTS hf.value_piece (
    piece_key bigint PRIMARY KEY,
    size bigint NOT NULL,
    data bytea NOT NULL
);

INSERT INTO hf.setting (name, value) VALUES ('epoch', 1) ON CONFLICT (name) DO NOTHING;
