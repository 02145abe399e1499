-- name: run
SELECT * FROM run WHERE thread_no = ?1

-- name: run_and_newest_entry
SELECT run.*,
    (SELECT row_key FROM entry WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key DESC LIMIT 1)
FROM run WHERE thread_no = ?1

-- name: newest_entry
SELECT row_key FROM entry WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key DESC LIMIT 1

-- name: runs
SELECT run.*, thread.*
FROM run INDEXED BY run_by_status LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1 AND run.status = ?2 AND (run.updated_at, run.thread_no) > (?3, ?4)
ORDER BY run.updated_at, run.thread_no LIMIT ?5

-- name: queue
SELECT run.*, thread.*
FROM run INDEXED BY run_queue LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1 AND run.handler = ?2 AND run.ready = 1
  AND (run.rank, run.updated_at, run.thread_no) > (?3, ?4, ?5)
ORDER BY run.rank, run.updated_at, run.thread_no LIMIT ?6

-- name: running
SELECT * FROM run INDEXED BY run_by_status WHERE namespace = ?1 AND status = CAST('running' AS BLOB) AND handler = ?2

-- name: lock_limit
SELECT claims FROM claim_limit WHERE namespace = ?1 AND handler = ?2

-- name: put_limit
INSERT INTO claim_limit (namespace, handler, claims) VALUES (?1, ?2, ?3)
ON CONFLICT (namespace, handler) DO UPDATE SET claims = ?3

-- name: waking_groups
-- The clocks and priorities of the runs that wait for a time. Each is found by one step in the index; a scan would read
-- all such runs. The search ends at a row that contradicts the index, or it might never end.
WITH RECURSIVE found (thread_no, clock, rank, is_later) AS (
    SELECT * FROM (SELECT thread_no, clock, rank, 1 FROM run INDEXED BY run_waking
                   WHERE namespace = ?1 AND wake_at > 0 ORDER BY clock, rank LIMIT 1)
    UNION ALL
    SELECT run.thread_no, run.clock, run.rank, (run.clock, run.rank) > (found.clock, found.rank)
    FROM found CROSS JOIN run ON found.is_later AND run.thread_no = coalesce(
        (SELECT thread_no FROM run INDEXED BY run_waking
         WHERE namespace = ?1 AND wake_at > 0 AND clock = found.clock AND rank > found.rank ORDER BY rank LIMIT 1),
        (SELECT thread_no FROM run INDEXED BY run_waking
         WHERE namespace = ?1 AND wake_at > 0 AND clock > found.clock ORDER BY clock, rank LIMIT 1)))
SELECT clock, rank FROM found

-- name: due
SELECT run.*, thread.*
FROM run INDEXED BY run_waking LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1 AND run.clock = ?2 AND run.rank = ?3 AND run.wake_at > 0 AND run.wake_at <= ?4
ORDER BY run.wake_at, run.thread_no LIMIT ?5

-- name: due_by_wall
SELECT run.*, thread.*
FROM run INDEXED BY run_waking_by_wall LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1 AND run.clock = ?2 AND run.rank = ?3 AND run.wake_at > 0 AND run.wake_wall <= ?4
ORDER BY run.wake_wall, run.thread_no LIMIT ?5

-- name: put_run
INSERT INTO run (thread_no, namespace, status, fence, updated_at, clock, wake_at, wake_wall, handler, rank, ready,
    lease_until, lease_checksum, entries, record, checksum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
ON CONFLICT (thread_no) DO UPDATE SET status = ?3, fence = ?4, updated_at = ?5, clock = ?6, wake_at = ?7, wake_wall = ?8,
    handler = ?9, rank = ?10, ready = ?11, lease_until = ?12, lease_checksum = ?13, entries = ?14, record = ?15,
    checksum = ?16

-- name: count_entries
UPDATE run SET entries = ?2 WHERE thread_no = ?1

-- name: delete_run
DELETE FROM run WHERE thread_no = ?1

-- name: entries
SELECT row_key, record FROM entry WHERE row_key BETWEEN ?1 AND ?2 ORDER BY row_key LIMIT ?3

-- name: entry
SELECT row_key, record FROM entry WHERE row_key = ?1

-- name: insert_entry
INSERT INTO entry (row_key, record, topic) VALUES (?1, ?2, ?3)

-- name: update_entry
UPDATE entry SET record = ?2, topic = ?3 WHERE row_key = ?1 RETURNING row_key

-- name: entries_by_topic
SELECT row_key, record FROM entry INDEXED BY entry_by_topic
WHERE topic = ?4 AND topic IS NOT NULL AND row_key BETWEEN ?1 AND ?2 ORDER BY row_key LIMIT ?3
