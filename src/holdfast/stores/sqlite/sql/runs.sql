-- name: run
SELECT * FROM run WHERE thread_no = ?1

-- name: run_and_last
-- The run and the newest key of its journal, in one statement because every journal entry needs them.
SELECT
    (SELECT row_key FROM effect WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff
     ORDER BY row_key DESC LIMIT 1),
    run.*
FROM run WHERE thread_no = ?1

-- name: last_effect
SELECT row_key FROM effect WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key DESC LIMIT 1

-- name: open_runs
-- The condition must repeat that of the index exactly, or SQLite does not use the index.
SELECT run.*, thread.*
FROM run INDEXED BY run_open LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1 AND run.status IN ('queued', 'running', 'waiting')
  AND (run.updated_at, run.thread_no) > (?2, ?3) AND run.status IN (SELECT value FROM json_each(?5))
ORDER BY run.updated_at, run.thread_no LIMIT ?4

-- name: runs
SELECT run.*, thread.*
FROM run NOT INDEXED LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1
  AND (run.updated_at, run.thread_no) > (?2, ?3) AND run.status IN (SELECT value FROM json_each(?5))
ORDER BY run.updated_at, run.thread_no LIMIT ?4

-- name: waking_clocks
-- The clocks on which runs wait for a time. Each is found by one step in the index; a scan would read all such runs.
WITH RECURSIVE clock (id) AS (
    SELECT min(wake_clock) FROM run INDEXED BY run_waking WHERE namespace = ?1 AND wake_at > 0
    UNION ALL
    SELECT (SELECT min(wake_clock) FROM run INDEXED BY run_waking
            WHERE namespace = ?1 AND wake_at > 0 AND wake_clock > clock.id)
    FROM clock WHERE clock.id IS NOT NULL)
SELECT id FROM clock WHERE id IS NOT NULL

-- name: woken
SELECT run.*, thread.*
FROM run INDEXED BY run_waking LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1 AND run.wake_clock = ?2 AND run.wake_at > 0 AND run.wake_at <= ?3
ORDER BY run.wake_at, run.thread_no LIMIT ?4

-- name: woken_by_wall
SELECT run.*, thread.*
FROM run INDEXED BY run_waking_by_wall LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1 AND run.wake_clock = ?2 AND run.wake_at > 0 AND run.wake_wall <= ?3
ORDER BY run.wake_wall, run.thread_no LIMIT ?4

-- name: put_run
INSERT INTO run (thread_no, namespace, status, updated_at, wake_clock, wake_at, wake_wall, entries, record, checksum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (thread_no) DO UPDATE SET status = ?3, updated_at = ?4, wake_clock = ?5, wake_at = ?6, wake_wall = ?7,
    entries = ?8, record = ?9, checksum = ?10

-- name: count_entries
UPDATE run SET entries = ?2, checksum = ?3 WHERE thread_no = ?1

-- name: delete_run
DELETE FROM run WHERE thread_no = ?1

-- name: effects
SELECT row_key, record FROM effect WHERE row_key BETWEEN ?1 AND ?2 ORDER BY row_key LIMIT ?3

-- name: effect
SELECT row_key, record FROM effect WHERE row_key = ?1

-- name: insert_effect
INSERT INTO effect (row_key, record, mark) VALUES (?1, ?2, ?3)

-- name: marked
SELECT row_key, record FROM effect INDEXED BY effect_marked
WHERE mark = ?2 AND mark IS NOT NULL AND row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key

-- name: update_effect
UPDATE effect SET record = ?2, mark = ?3 WHERE row_key = ?1

-- name: delete_effects
DELETE FROM effect WHERE row_key IN (
    SELECT row_key FROM effect WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key LIMIT ?2)

-- name: show_status
UPDATE thread SET status = ?2, updated_at = ?3, checksum = ?4 WHERE thread_no = ?1
