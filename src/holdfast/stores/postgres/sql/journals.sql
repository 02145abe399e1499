-- name: lock_run
SELECT * FROM hf.run WHERE thread_no = $1 FOR UPDATE

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

-- name: announce
-- Separate from the commit, where it would hold a lock of the whole server until the log is flushed.
SELECT pg_catalog.set_config('lock_timeout', '1s', true), pg_catalog.pg_notify($1, '')

-- name: entries_by_topic
SELECT row_key, record FROM hf.entry
WHERE topic_start = substr($4::bytea, 1, 1024) AND topic = $4 AND topic IS NOT NULL AND row_key BETWEEN $1 AND $2
ORDER BY row_key LIMIT $3
