-- name: run
SELECT * FROM hf.run WHERE thread_no = $1

-- name: lock_run
SELECT * FROM hf.run WHERE thread_no = $1 FOR UPDATE

-- name: last_effect
SELECT max(row_key) FROM hf.effect
WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295

-- name: runs
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.status = $2 AND (run.updated_at, run.thread_no) > ($3::bigint, $4::bigint)
ORDER BY run.updated_at, run.thread_no LIMIT $5

-- name: waking_clocks
-- The clocks on which runs wait for a time. Each is found by one step in the index; a scan would read all such runs.
WITH RECURSIVE clock (id) AS (
    (SELECT wake_clock FROM hf.run WHERE namespace = $1 AND wake_at > 0 ORDER BY wake_clock LIMIT 1)
    UNION ALL
    SELECT (SELECT wake_clock FROM hf.run WHERE namespace = $1 AND wake_at > 0 AND wake_clock > clock.id
            ORDER BY wake_clock LIMIT 1)
    FROM clock WHERE clock.id IS NOT NULL)
SELECT id FROM clock WHERE id IS NOT NULL

-- name: woken
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.wake_clock = $2 AND run.wake_at > 0 AND run.wake_at <= $3
ORDER BY run.wake_at, run.thread_no LIMIT $4

-- name: woken_by_wall
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.wake_clock = $2 AND run.wake_at > 0 AND run.wake_wall <= $3
ORDER BY run.wake_wall, run.thread_no LIMIT $4

-- name: insert_run
INSERT INTO hf.run (thread_no, namespace, status, updated_at, wake_clock, wake_at, wake_wall, entries, record, checksum,
    version)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: update_run
UPDATE hf.run SET namespace = $2, status = $3, updated_at = $4, wake_clock = $5, wake_at = $6, wake_wall = $7,
    entries = $8, record = $9, checksum = $10, version = $11
WHERE thread_no = $1

-- name: delete_run
DELETE FROM hf.run WHERE thread_no = $1

-- name: announce
-- Separate from the commit, where it would hold a lock of the whole server until the log is flushed.
SELECT pg_catalog.set_config('lock_timeout', '1s', true), pg_catalog.pg_notify($1, '')

-- name: effects
SELECT row_key, record FROM hf.effect WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: effect
SELECT row_key, record FROM hf.effect WHERE row_key = $1

-- name: effects_of
SELECT row_key, record FROM hf.effect WHERE row_key = ANY($1::bigint[])

-- name: insert_effects
INSERT INTO hf.effect (row_key, record, mark) SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])

-- name: update_effects
UPDATE hf.effect SET record = changed.record, mark = changed.mark
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS changed (row_key, record, mark)
WHERE effect.row_key = changed.row_key

-- name: marked
SELECT row_key, record FROM hf.effect
WHERE mark_start = substr($2::bytea, 1, 1024) AND mark = $2 AND mark IS NOT NULL
  AND row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
ORDER BY row_key

-- name: delete_effects
DELETE FROM hf.effect WHERE row_key IN (
    SELECT row_key FROM hf.effect WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
    ORDER BY row_key LIMIT $2)
