-- Data keys of encrypted namespaces, each wrapped by the user's key `name`. Encrypted data refers to its key by `id`.
CREATE TABLE IF NOT EXISTS hf.data_key (
    namespace bytea NOT NULL,
    id bytea NOT NULL,
    name bytea NOT NULL,
    wrapped bytea NOT NULL,
    PRIMARY KEY (namespace, id)
);

-- The starts of names, labels and topics are columns: under row-level security, an index on an expression is not used.
ALTER TABLE hf.thread
ADD COLUMN IF NOT EXISTS name_start bytea GENERATED ALWAYS AS (substr(name, 1, 1024)) STORED;
DROP INDEX IF EXISTS hf.thread_by_name;
CREATE INDEX IF NOT EXISTS thread_by_name ON hf.thread (namespace, name_start) WHERE name IS NOT NULL;
DROP INDEX IF EXISTS hf.thread_by_digest;
CREATE UNIQUE INDEX IF NOT EXISTS thread_by_digest ON hf.thread (namespace, name_digest);

ALTER TABLE hf.checkpoint
ADD COLUMN IF NOT EXISTS label_start bytea GENERATED ALWAYS AS (substr(label, 1, 1024)) STORED;
DROP INDEX IF EXISTS hf.checkpoint_by_label;
CREATE INDEX IF NOT EXISTS checkpoint_by_label ON hf.checkpoint (label_start, row_key) WHERE label IS NOT NULL;

ALTER TABLE hf.effect
ADD COLUMN IF NOT EXISTS mark_start bytea GENERATED ALWAYS AS (substr(mark, 1, 1024)) STORED;
DROP INDEX IF EXISTS hf.effect_marked;
CREATE INDEX IF NOT EXISTS effect_marked ON hf.effect (mark_start, row_key) WHERE mark IS NOT NULL;

-- The epoch of each namespace that has blobs. In format 1 all namespaces shared one, in the settings.
CREATE TABLE IF NOT EXISTS hf.epoch (
    namespace bytea PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO hf.epoch (namespace, value)
SELECT DISTINCT v.namespace, s.value FROM hf.value v CROSS JOIN hf.setting s WHERE s.name = 'epoch'
ON CONFLICT (namespace) DO NOTHING;
DELETE FROM hf.setting WHERE name = 'epoch';
