-- name: integrity
-- SQLite stops after this many problems.
PRAGMA integrity_check(100)

-- name: index_sizes
-- What each index covers, its entries, and the rows that it should cover.
SELECT 'thread names', (SELECT count(*) FROM thread INDEXED BY thread_by_name WHERE namespace >= x'' AND name IS NOT NULL),
    (SELECT count(*) FROM thread NOT INDEXED WHERE name IS NOT NULL)
UNION ALL
SELECT 'thread name digests', (SELECT count(*) FROM thread INDEXED BY thread_by_digest WHERE name_digest IS NOT NULL),
    (SELECT count(*) FROM thread NOT INDEXED WHERE name IS NOT NULL)
UNION ALL
SELECT 'labels', (SELECT count(*) FROM checkpoint INDEXED BY checkpoint_by_label WHERE label IS NOT NULL),
    (SELECT count(*) FROM checkpoint NOT INDEXED WHERE label IS NOT NULL)
UNION ALL
SELECT 'runs', (SELECT count(*) FROM run INDEXED BY run_by_status WHERE namespace >= x''),
    (SELECT count(*) FROM run NOT INDEXED)
UNION ALL
SELECT 'queued runs', (SELECT count(*) FROM run INDEXED BY run_queue WHERE ready = 1),
    (SELECT count(*) FROM run NOT INDEXED WHERE ready = 1)
UNION ALL
SELECT 'wake times', (SELECT count(*) FROM run INDEXED BY run_waking WHERE wake_at > 0),
    (SELECT count(*) FROM run NOT INDEXED WHERE wake_at > 0)
UNION ALL
SELECT 'wake times by the wall clock', (SELECT count(*) FROM run INDEXED BY run_waking_by_wall WHERE wake_at > 0),
    (SELECT count(*) FROM run NOT INDEXED WHERE wake_at > 0)
UNION ALL
SELECT 'topics of journal entries', (SELECT count(*) FROM entry INDEXED BY entry_by_topic WHERE topic IS NOT NULL),
    (SELECT count(*) FROM entry NOT INDEXED WHERE topic IS NOT NULL)

-- name: many_names
-- The numbers that the two lookups of each name find.
SELECT thread_no,
    (SELECT thread_no FROM thread INDEXED BY thread_by_name WHERE namespace = one.namespace AND name = one.name),
    (SELECT thread_no FROM thread INDEXED BY thread_by_digest WHERE name_digest = one.name_digest)
FROM thread AS one NOT INDEXED
WHERE namespace = ?1 AND thread_no BETWEEN ?2 AND ?3 AND name IS NOT NULL
