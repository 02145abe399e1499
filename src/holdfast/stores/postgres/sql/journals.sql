-- name: run
SELECT * FROM hf.run WHERE thread_no = $1

-- name: lock_run
SELECT * FROM hf.run WHERE thread_no = $1 FOR UPDATE

-- name: newest_entry
SELECT max(row_key) FROM hf.entry
WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295

-- name: runs
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.status = $2 AND (run.updated_at, run.thread_no) > ($3::bigint, $4::bigint)
ORDER BY run.updated_at, run.thread_no LIMIT $5

-- name: waking_clocks
-- The clocks on which runs wait for a time. Each is found by one step in the index; a scan would read all such runs.
WITH RECURSIVE found (id) AS (
    (SELECT clock FROM hf.run WHERE namespace = $1 AND wake_at > 0 ORDER BY clock LIMIT 1)
    UNION ALL
    SELECT (SELECT clock FROM hf.run WHERE namespace = $1 AND wake_at > 0 AND clock > found.id
            ORDER BY clock LIMIT 1)
    FROM found WHERE found.id IS NOT NULL)
SELECT id FROM found WHERE id IS NOT NULL

-- name: due
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.clock = $2 AND run.wake_at > 0 AND run.wake_at <= $3
ORDER BY run.wake_at, run.thread_no LIMIT $4

-- name: due_by_wall
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.clock = $2 AND run.wake_at > 0 AND run.wake_wall <= $3
ORDER BY run.wake_wall, run.thread_no LIMIT $4

-- name: put_run
INSERT INTO hf.run (thread_no, namespace, status, fence, updated_at, clock, wake_at, wake_wall, lease_until,
    lease_checksum, entries, record, checksum)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (thread_no) DO UPDATE SET status = $3, fence = $4, updated_at = $5, clock = $6, wake_at = $7,
    wake_wall = $8, lease_until = $9, lease_checksum = $10, entries = $11, record = $12, checksum = $13

-- name: count_entries
UPDATE hf.run SET entries = $2 WHERE thread_no = $1

-- name: delete_run
DELETE FROM hf.run WHERE thread_no = $1

-- name: announce
-- Separate from the commit, where it would hold a lock of the whole server until the log is flushed.
SELECT pg_catalog.set_config('lock_timeout', '1s', true), pg_catalog.pg_notify($1, '')

-- name: entries
SELECT row_key, record FROM hf.entry WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: entry
SELECT row_key, record FROM hf.entry WHERE row_key = $1

-- name: insert_entry
INSERT INTO hf.entry (row_key, record, topic) VALUES ($1, $2, $3)

-- name: update_entry
UPDATE hf.entry SET record = $2, topic = $3 WHERE row_key = $1 RETURNING row_key

-- name: entries_by_topic
SELECT row_key, record FROM hf.entry
WHERE topic_start = substr($4::bytea, 1, 1024) AND topic = $4 AND topic IS NOT NULL AND row_key BETWEEN $1 AND $2
ORDER BY row_key LIMIT $3
