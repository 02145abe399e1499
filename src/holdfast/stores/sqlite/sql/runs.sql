-- name: run
SELECT thread_no, namespace, status, updated_at, entries, record, checksum FROM run WHERE thread_no = ?1

-- name: run_and_last
-- The run, and the newest key of its journal: one statement, since it runs on every journal entry.
SELECT
    (SELECT row_key FROM effect WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff
     ORDER BY row_key DESC LIMIT 1),
    thread_no, namespace, status, updated_at, entries, record, checksum
FROM run WHERE thread_no = ?1

-- name: last_effect
SELECT row_key FROM effect WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key DESC LIMIT 1

-- name: open_runs
-- The condition must be that of the index, word for word, or SQLite does not use it.
SELECT run.thread_no, run.namespace, run.status, run.updated_at, run.entries, run.record, run.checksum, thread.*
FROM run INDEXED BY run_open LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1 AND run.status IN ('queued', 'running', 'waiting')
  AND (run.updated_at, run.thread_no) > (?2, ?3) AND run.status IN (SELECT value FROM json_each(?5))
ORDER BY run.updated_at, run.thread_no LIMIT ?4

-- name: runs
SELECT run.thread_no, run.namespace, run.status, run.updated_at, run.entries, run.record, run.checksum, thread.*
FROM run NOT INDEXED LEFT JOIN thread ON thread.thread_no = run.thread_no
WHERE run.namespace = ?1
  AND (run.updated_at, run.thread_no) > (?2, ?3) AND run.status IN (SELECT value FROM json_each(?5))
ORDER BY run.updated_at, run.thread_no LIMIT ?4

-- name: put_run
INSERT INTO run (thread_no, namespace, status, updated_at, entries, record, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (thread_no) DO UPDATE SET status = ?3, updated_at = ?4, entries = ?5, record = ?6, checksum = ?7

-- name: count_entries
UPDATE run SET entries = ?2, checksum = ?3 WHERE thread_no = ?1

-- name: delete_run
DELETE FROM run WHERE thread_no = ?1

-- name: effects
SELECT row_key, record FROM effect WHERE row_key BETWEEN ?1 AND ?2 ORDER BY row_key LIMIT ?3

-- name: effect
SELECT row_key, record FROM effect WHERE row_key = ?1

-- name: insert_effect
INSERT INTO effect (row_key, record) VALUES (?1, ?2)

-- name: update_effect
UPDATE effect SET record = ?2 WHERE row_key = ?1

-- name: delete_effects
DELETE FROM effect WHERE row_key IN (
    SELECT row_key FROM effect WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key LIMIT ?2)

-- name: show_status
UPDATE thread SET status = ?2, updated_at = ?3, checksum = ?4 WHERE thread_no = ?1
