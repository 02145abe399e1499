-- The tables of the SQLite store: `stores/sqlite/sql/schema.sql` says what their rows and columns are. Here is only what
-- differs. Text is stored as UTF-8 bytes: it is compared by bytes, whatever the database's collation, and may contain
-- NUL. `hf.` is replaced by the store's schema.

-- Thread and blob numbers are the values of these sequences with their bits reversed. Keys that only grow would send
-- every write to the same range of a range-sharded server; reversed, they are as unique and spread evenly.
-- A number is never reused, so references to a dropped thread find nothing. Thread numbers have 31 bits and blob numbers
-- 39, because they are the upper part of a signed key.
CREATE SEQUENCE IF NOT EXISTS hf.thread_number MAXVALUE 2147483647;
CREATE SEQUENCE IF NOT EXISTS hf.blob_number MAXVALUE 549755813887;

-- Every save changes a row. Half of each page is left free, so that a new version of a row fits on the same page and no
-- index is touched.
CREATE TABLE IF NOT EXISTS hf.thread (
    thread_no bigint PRIMARY KEY,
    namespace bytea NOT NULL,
    name bytea,
    name_digest bytea,
    head bigint NOT NULL,
    move bigint NOT NULL,
    last bigint NOT NULL,
    deleted bigint NOT NULL,
    deleted_checksum bigint NOT NULL,
    head_id bytea NOT NULL,
    fence bigint,
    step bigint NOT NULL,
    status bytea NOT NULL,
    agent bytea,
    size bigint NOT NULL,
    updated_at bigint NOT NULL,
    checksum bigint NOT NULL,
    name_start bytea GENERATED ALWAYS AS (substr(name, 1, 1024)) STORED
) WITH (fillfactor = 50);

-- A name may be longer than an index key, so one index has its start and the other its digest, which also keeps names
-- unique. The start is a column: under row-level security, an index on an expression is not used.
CREATE INDEX IF NOT EXISTS thread_by_name ON hf.thread (namespace, name_start) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS thread_by_digest ON hf.thread (namespace, name_digest);

CREATE TABLE IF NOT EXISTS hf.checkpoint (
    row_key bigint PRIMARY KEY,
    step bigint NOT NULL,
    label bytea,
    head bytea NOT NULL,
    meta bytea NOT NULL,
    refs bytea NOT NULL,
    skeleton bytea NOT NULL,
    cells bytea,
    label_start bytea GENERATED ALWAYS AS (substr(label, 1, 1024)) STORED
);

CREATE INDEX IF NOT EXISTS checkpoint_by_label ON hf.checkpoint (label_start, row_key) WHERE label IS NOT NULL;

CREATE TABLE IF NOT EXISTS hf.segment (
    row_key bigint PRIMARY KEY,
    first_seq bigint NOT NULL,
    cells bytea NOT NULL
);

CREATE TABLE IF NOT EXISTS hf.move (
    row_key bigint PRIMARY KEY,
    head bigint NOT NULL,
    made_at bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS hf.fork (
    origin bigint NOT NULL,
    thread bigint NOT NULL,
    PRIMARY KEY (origin, thread)
);

CREATE INDEX IF NOT EXISTS fork_by_thread ON hf.fork (thread, origin);

-- Every change of the status or fence changes the thread's row, too; a renewal and a journal entry change this row alone.
CREATE TABLE IF NOT EXISTS hf.run (
    thread_no bigint PRIMARY KEY,
    namespace bytea NOT NULL,
    status bytea NOT NULL,
    fence bigint NOT NULL,
    updated_at bigint NOT NULL,
    clock bytea NOT NULL,
    wake_at bigint NOT NULL,
    wake_wall bigint NOT NULL,
    handler bytea,
    rank bigint NOT NULL,
    ready bigint NOT NULL,
    lease_until bigint NOT NULL,
    lease_checksum bigint NOT NULL,
    entries bigint NOT NULL,
    record bytea NOT NULL,
    checksum bigint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX IF NOT EXISTS run_by_status ON hf.run (namespace, status, updated_at, thread_no);
CREATE INDEX IF NOT EXISTS run_queue ON hf.run (namespace, handler, rank, updated_at, thread_no) WHERE ready = 1;
CREATE INDEX IF NOT EXISTS run_waking ON hf.run (namespace, clock, rank, wake_at, thread_no) WHERE wake_at > 0;
CREATE INDEX IF NOT EXISTS run_waking_by_wall ON hf.run (namespace, clock, rank, wake_wall, thread_no) WHERE wake_at > 0;

CREATE TABLE IF NOT EXISTS hf.entry (
    row_key bigint PRIMARY KEY,
    record bytea NOT NULL,
    topic bytea,
    topic_start bytea GENERATED ALWAYS AS (substr(topic, 1, 1024)) STORED
);

CREATE INDEX IF NOT EXISTS entry_by_topic ON hf.entry (topic_start, row_key) WHERE topic IS NOT NULL;

CREATE TABLE IF NOT EXISTS hf.act (
    namespace bytea NOT NULL,
    key bytea NOT NULL,
    thread_no bigint NOT NULL,
    number bigint NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);

-- A claim with a limit locks the row until its transaction ends, so that claims for a handler are counted one after the
-- other.
CREATE TABLE IF NOT EXISTS hf.claim_limit (
    namespace bytea NOT NULL,
    handler bytea NOT NULL,
    claims bytea,
    PRIMARY KEY (namespace, handler)
);

CREATE TABLE IF NOT EXISTS hf.sweep (
    thread_no bigint PRIMARY KEY,
    state bigint NOT NULL,
    last bigint NOT NULL,
    blobs bytea NOT NULL,
    checksum bigint
);

CREATE TABLE IF NOT EXISTS hf.blob (
    blob_no bigint PRIMARY KEY,
    namespace bytea NOT NULL,
    digest bytea NOT NULL,
    pieces bigint NOT NULL,
    stamp bigint NOT NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS blob_by_digest ON hf.blob (namespace, digest);

CREATE TABLE IF NOT EXISTS hf.piece (
    piece_key bigint PRIMARY KEY,
    size bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE IF NOT EXISTS hf.epoch (
    namespace bytea PRIMARY KEY,
    value bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS hf.data_key (
    namespace bytea NOT NULL,
    id bytea NOT NULL,
    name bytea NOT NULL,
    wrapped bytea NOT NULL,
    thread_no bigint,
    PRIMARY KEY (namespace, id)
);

CREATE INDEX IF NOT EXISTS data_key_by_thread ON hf.data_key (thread_no) WHERE thread_no IS NOT NULL;
