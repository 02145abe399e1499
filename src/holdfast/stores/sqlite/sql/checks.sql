-- name: integrity
-- SQLite stops after this many problems.
PRAGMA integrity_check(100)

-- name: check_numbers
SELECT thread_no FROM thread NOT INDEXED WHERE namespace = ?1 ORDER BY thread_no

-- name: check_threads
-- All columns are named: this fails if the schema itself is damaged.
SELECT thread_no, namespace, name, name_digest, head, move, last, deleted, deleted_checksum, head_id, fence, step, status,
    agent, size, updated_at, checksum
FROM thread NOT INDEXED WHERE thread_no > ?1 ORDER BY thread_no LIMIT ?2

-- name: check_runs
SELECT * FROM run NOT INDEXED WHERE thread_no > ?1 ORDER BY thread_no LIMIT ?2

-- name: check_sweeps
SELECT thread_no, state, last, blobs, checksum FROM sweep WHERE thread_no > ?1 ORDER BY thread_no LIMIT ?2

-- name: check_acts
SELECT act.key, act.thread_no, act.number, act.checksum, run.entries
FROM act LEFT JOIN run ON run.thread_no = act.thread_no AND run.namespace = act.namespace
WHERE act.namespace = ?1 AND act.key > ?2 ORDER BY act.key LIMIT ?3

-- name: orphans
SELECT 'checkpoints', row_key >> 32 FROM checkpoint WHERE row_key >> 32 NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'segments', row_key >> 32 FROM segment WHERE row_key >> 32 NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'moves', row_key >> 32 FROM move WHERE row_key >> 32 NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'a run', thread_no FROM run NOT INDEXED WHERE thread_no NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'journal entries', row_key >> 32 FROM entry
WHERE row_key >> 32 NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'a fork record', origin FROM fork WHERE origin NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'a fork record', thread FROM fork WHERE thread NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'a sweep record', thread_no FROM sweep WHERE thread_no NOT IN (SELECT thread_no FROM thread NOT INDEXED)

-- name: incomplete_blobs
SELECT digest FROM blob
WHERE namespace = ?1
  AND pieces <> (SELECT count(*) FROM piece WHERE piece_key BETWEEN blob_no << 24 AND blob_no << 24 | 0xffffff)

-- name: orphan_pieces
SELECT count(*) FROM piece WHERE piece_key >> 24 NOT IN (SELECT blob_no FROM blob)

-- name: check_checkpoints
SELECT row_key, step, label, head, meta, refs, skeleton FROM checkpoint
WHERE row_key BETWEEN ?1 AND ?2 ORDER BY row_key LIMIT ?3

-- name: check_entries
SELECT row_key, record, topic FROM entry WHERE row_key BETWEEN ?1 AND ?2 ORDER BY row_key LIMIT ?3

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

-- Many threads at once: those of a namespace with numbers from ?2 to ?3. Of longer threads and journals than ?4, nothing
-- is selected. The join reads nothing of other namespaces.

-- name: many_threads
SELECT * FROM thread NOT INDEXED WHERE namespace = ?1 AND thread_no BETWEEN ?2 AND ?3 ORDER BY thread_no

-- name: many_checkpoints
SELECT row_key, checkpoint.step, label, checkpoint.head, meta, refs, skeleton
FROM thread NOT INDEXED CROSS JOIN checkpoint ON row_key BETWEEN thread_no << 32 AND thread_no << 32 | 0xffffffff
WHERE namespace = ?1 AND thread_no BETWEEN ?2 AND ?3 AND last <= ?4 ORDER BY thread_no, row_key

-- name: many_moves
SELECT row_key, move.head
FROM thread NOT INDEXED CROSS JOIN move ON row_key BETWEEN thread_no << 32 AND thread_no << 32 | 0xffffffff
WHERE namespace = ?1 AND thread_no BETWEEN ?2 AND ?3 AND last <= ?4 ORDER BY thread_no, row_key

-- name: many_segments
SELECT row_key, first_seq
FROM thread NOT INDEXED CROSS JOIN segment ON row_key BETWEEN thread_no << 32 AND thread_no << 32 | 0xffffffff
WHERE namespace = ?1 AND thread_no BETWEEN ?2 AND ?3 AND last <= ?4 ORDER BY thread_no, row_key

-- name: many_runs
SELECT run.* FROM thread NOT INDEXED CROSS JOIN run NOT INDEXED USING (thread_no)
WHERE thread.namespace = ?1 AND thread_no BETWEEN ?2 AND ?3 ORDER BY thread_no

-- name: many_entries
SELECT row_key, record, topic
FROM thread NOT INDEXED CROSS JOIN entry ON row_key BETWEEN thread_no << 32 AND thread_no << 32 | 0xffffffff
WHERE thread.namespace = ?1 AND thread_no BETWEEN ?2 AND ?3
  AND coalesce((SELECT entries FROM run WHERE run.thread_no = thread.thread_no), 0) <= ?4
ORDER BY thread_no, row_key

-- name: many_forks
SELECT DISTINCT origin FROM fork NOT INDEXED WHERE origin BETWEEN ?1 AND ?2

-- name: many_names
-- The numbers that the two lookups of each name find.
SELECT thread_no,
    (SELECT thread_no FROM thread INDEXED BY thread_by_name WHERE namespace = one.namespace AND name = one.name),
    (SELECT thread_no FROM thread INDEXED BY thread_by_digest WHERE name_digest = one.name_digest)
FROM thread AS one NOT INDEXED
WHERE namespace = ?1 AND thread_no BETWEEN ?2 AND ?3 AND name IS NOT NULL
