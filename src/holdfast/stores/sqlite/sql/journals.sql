-- name: run_and_newest_entry
SELECT run.*,
    (SELECT row_key FROM entry WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key DESC LIMIT 1)
FROM run WHERE thread_no = ?1

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

-- name: entries_by_topic
SELECT row_key, record FROM entry INDEXED BY entry_by_topic
WHERE topic = ?4 AND topic IS NOT NULL AND row_key BETWEEN ?1 AND ?2 ORDER BY row_key LIMIT ?3
