-- name: format
SELECT value FROM hf.setting WHERE name = 'format'

-- name: limits
-- Of this transaction alone. How long it waits for a lock; and how long it may hold its own while its process does
-- nothing (stopped, or cut off), so that nobody waits for it for ever.
SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true)

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
SELECT 1 FROM information_schema.schemata WHERE schema_name = $1

-- name: has_other_tables
SELECT 1 FROM information_schema.tables
WHERE table_schema = $1
  AND table_name IN ('thread', 'checkpoint', 'segment', 'move', 'fork', 'run', 'effect', 'value', 'value_piece')
LIMIT 1
