-- name: run
SELECT * FROM hf.run WHERE thread_no = $1

-- name: newest_entry
SELECT row_key FROM hf.entry WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
ORDER BY row_key DESC LIMIT 1

-- name: runs
SELECT run.*, thread.*
FROM hf.run {INDEXED BY run_by_status} LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.status = $2 AND (run.updated_at, run.thread_no) > ($3::bigint, $4::bigint)
ORDER BY run.updated_at, run.thread_no LIMIT $5

-- name: running
SELECT * FROM hf.run {INDEXED BY run_by_status} WHERE namespace = $1 AND handler = $2 AND status = $3

-- name: queue
SELECT run.*, thread.*
FROM hf.run {INDEXED BY run_queue} LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.handler = $2 AND run.ready = 1
  AND (run.rank, run.updated_at, run.thread_no) > ($3::bigint, $4::bigint, $5::bigint)
ORDER BY run.rank, run.updated_at, run.thread_no LIMIT $6

-- name: due
SELECT run.*, thread.*
FROM hf.run {INDEXED BY run_waking} LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
WHERE run.namespace = $1 AND run.clock = $2 AND run.rank = $3 AND run.wake_at > 0 AND run.wake_at <= $4
ORDER BY run.wake_at, run.thread_no LIMIT $5

-- name: due_by_wall
SELECT run.*, thread.*
FROM hf.run {INDEXED BY run_waking_by_wall} LEFT JOIN hf.thread ON thread.thread_no = run.thread_no
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

-- name: entries
SELECT row_key, record FROM hf.entry WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: entry
SELECT row_key, record FROM hf.entry WHERE row_key = $1

-- name: insert_entry
INSERT INTO hf.entry (row_key, record, topic) VALUES ($1, $2, $3)

-- name: update_entry
UPDATE hf.entry SET record = $2, topic = $3 WHERE row_key = $1 RETURNING row_key
