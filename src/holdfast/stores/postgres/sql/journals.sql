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

-- name: queue
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.handler = $2 AND run.ready = 1
  AND (run.rank, run.updated_at, run.thread_no) > ($3::bigint, $4::bigint, $5::bigint)
ORDER BY run.rank, run.updated_at, run.thread_no LIMIT $6

-- name: running
SELECT * FROM hf.run WHERE namespace = $1 AND status = 'running'::bytea AND handler = $2

-- name: lock_limit
INSERT INTO hf.claim_limit AS known (namespace, handler) VALUES ($1, $2)
ON CONFLICT (namespace, handler) DO UPDATE SET claims = known.claims RETURNING claims

-- name: put_limit
UPDATE hf.claim_limit SET claims = $3 WHERE namespace = $1 AND handler = $2

-- name: waking_groups
-- The clocks and priorities of the runs that wait for a time. Each is found by one step in the index; a scan would read
-- all such runs.
WITH RECURSIVE found (clock, rank) AS (
    (SELECT clock, rank FROM hf.run WHERE namespace = $1 AND wake_at > 0 ORDER BY clock, rank LIMIT 1)
    UNION ALL
    SELECT following.clock, following.rank
    FROM found, LATERAL (
        SELECT run.clock, run.rank FROM hf.run
        WHERE run.namespace = $1 AND run.wake_at > 0 AND (run.clock, run.rank) > (found.clock, found.rank)
        ORDER BY run.clock, run.rank LIMIT 1) AS following)
SELECT clock, rank FROM found

-- name: due
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.clock = $2 AND run.rank = $3 AND run.wake_at > 0 AND run.wake_at <= $4
ORDER BY run.wake_at, run.thread_no LIMIT $5

-- name: due_by_wall
SELECT run.*, thread.*
FROM hf.run LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.clock = $2 AND run.rank = $3 AND run.wake_at > 0 AND run.wake_wall <= $4
ORDER BY run.wake_wall, run.thread_no LIMIT $5

-- name: put_run
INSERT INTO hf.run (thread_no, namespace, status, fence, updated_at, clock, wake_at, wake_wall, handler, rank, ready,
    lease_until, lease_checksum, entries, record, checksum)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
ON CONFLICT (thread_no) DO UPDATE SET status = $3, fence = $4, updated_at = $5, clock = $6, wake_at = $7,
    wake_wall = $8, handler = $9, rank = $10, ready = $11, lease_until = $12, lease_checksum = $13, entries = $14,
    record = $15, checksum = $16

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
