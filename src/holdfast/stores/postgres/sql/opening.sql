-- name: format
SELECT value FROM hf.setting WHERE name = 'format'

-- name: limits
-- For this transaction only: how long it waits for a lock, and how long it may hold locks while its process does
-- nothing (stopped or disconnected), so that other processes do not wait forever.
SELECT pg_catalog.set_config('lock_timeout', $1, true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true)

-- name: durable
-- For this transaction only: its commit is acknowledged after it is flushed.
SELECT pg_catalog.set_config('synchronous_commit', 'on', true)

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS hf

-- name: create_setting
CREATE TABLE IF NOT EXISTS hf.setting (name text PRIMARY KEY, value bigint NOT NULL)

-- name: insert_format
INSERT INTO hf.setting (name, value) VALUES ('format', 0) ON CONFLICT (name) DO NOTHING

-- name: lock_format
SELECT value FROM hf.setting WHERE name = 'format' FOR UPDATE

-- name: set_format
UPDATE hf.setting SET value = $1 WHERE name = 'format'

-- name: has_schema
SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1

-- name: has_other_tables
-- Whether or not this role may use them.
SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1
  AND relname IN ('thread', 'checkpoint', 'segment', 'move', 'fork', 'run', 'entry', 'act', 'claim_limit', 'sweep', 'blob', 'piece',
      'epoch', 'data_key', 'thread_number', 'blob_number')
LIMIT 1
