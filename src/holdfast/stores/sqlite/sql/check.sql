-- name: threads
SELECT * FROM thread NOT INDEXED

-- name: numbers
SELECT thread_no FROM thread NOT INDEXED WHERE namespace = ?1 ORDER BY thread_no

-- name: named_in_table
SELECT count(*) FROM thread NOT INDEXED WHERE name IS NOT NULL

-- name: named_in_name_index
SELECT count(*) FROM thread INDEXED BY thread_by_name WHERE namespace >= x'' AND name IS NOT NULL

-- name: named_in_hash_index
SELECT count(*) FROM thread INDEXED BY thread_by_hash WHERE name_hash IS NOT NULL

-- name: labels_in_table
SELECT count(*) FROM checkpoint NOT INDEXED WHERE label IS NOT NULL

-- name: labels_in_index
SELECT count(*) FROM checkpoint INDEXED BY checkpoint_by_label WHERE label IS NOT NULL

-- name: runs
SELECT * FROM run NOT INDEXED

-- name: open_in_table
SELECT count(*) FROM run NOT INDEXED WHERE status IN ('queued', 'running', 'waiting')

-- name: open_in_index
SELECT count(*) FROM run INDEXED BY run_open WHERE status IN ('queued', 'running', 'waiting')

-- name: waking_in_table
SELECT count(*) FROM run NOT INDEXED WHERE wake_at > 0

-- name: waking_in_index
SELECT count(*) FROM run INDEXED BY run_waking WHERE wake_at > 0

-- name: waking_in_wall_index
SELECT count(*) FROM run INDEXED BY run_waking_by_wall WHERE wake_at > 0

-- name: orphans
SELECT 'checkpoints', row_key >> 32 FROM checkpoint WHERE row_key >> 32 NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'segments', row_key >> 32 FROM segment WHERE row_key >> 32 NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'moves', row_key >> 32 FROM move WHERE row_key >> 32 NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'a run', thread_no FROM run NOT INDEXED WHERE thread_no NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'journal entries', row_key >> 32 FROM effect
WHERE row_key >> 32 NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'a fork entry', origin FROM fork WHERE origin NOT IN (SELECT thread_no FROM thread NOT INDEXED)
UNION
SELECT 'a fork entry', thread FROM fork WHERE thread NOT IN (SELECT thread_no FROM thread NOT INDEXED)

-- name: values_in_pieces
SELECT digest FROM value
WHERE namespace = ?1
  AND pieces <> (SELECT count(*) FROM value_piece WHERE piece_key BETWEEN value_no << 24 AND value_no << 24 | 0xffffff)

-- name: orphan_pieces
SELECT count(*) FROM value_piece WHERE piece_key >> 24 NOT IN (SELECT value_no FROM value)

-- name: checkpoints
SELECT row_key, step, label, head, meta, refs, skeleton FROM checkpoint
WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key

-- name: marked_in_table
SELECT count(*) FROM effect NOT INDEXED WHERE mark IS NOT NULL

-- name: marked_in_index
SELECT count(*) FROM effect INDEXED BY effect_marked WHERE mark IS NOT NULL

-- name: effects
SELECT row_key, record, mark FROM effect WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key

-- name: run_of
SELECT namespace, entries FROM run WHERE thread_no = ?1

-- name: moves
SELECT row_key & 0xffffffff, head FROM move WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key

-- name: segments
SELECT row_key & 0xffffffff, first_seq FROM segment
WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key
