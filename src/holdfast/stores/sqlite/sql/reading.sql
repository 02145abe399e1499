-- name: thread_by_name
SELECT * FROM thread INDEXED BY thread_by_name WHERE namespace = ?1 AND name = ?2

-- name: threads_by_hash
SELECT * FROM thread INDEXED BY thread_by_hash WHERE name_hash = ?1

-- name: thread_by_number
SELECT * FROM thread WHERE thread_no = ?1

-- name: rows_of
SELECT
    EXISTS (SELECT 1 FROM checkpoint WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff),
    EXISTS (SELECT 1 FROM segment WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff)

-- name: newest_and_head
SELECT
    (SELECT row_key FROM checkpoint WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff
     ORDER BY row_key DESC LIMIT 1),
    (SELECT row_key FROM checkpoint WHERE row_key = ?1 << 32 | ?2)

-- name: threads_from
SELECT * FROM thread INDEXED BY thread_by_name
WHERE namespace = ?1 AND name >= ?2 ORDER BY name LIMIT ?3

-- name: threads_after
-- One lower bound only: with two, SQLite seeks to one of them and scans to the other.
SELECT * FROM thread INDEXED BY thread_by_name
WHERE namespace = ?1 AND name > ?2 ORDER BY name LIMIT ?3

-- name: thread_numbers
SELECT thread_no FROM thread WHERE namespace = ?1 ORDER BY thread_no

-- name: checkpoint
SELECT row_key, step, label, head, meta, refs, skeleton FROM checkpoint WHERE row_key = ?1

-- name: checkpoints
SELECT row_key, step, label, head, meta FROM checkpoint
WHERE row_key BETWEEN ?1 AND ?2 ORDER BY row_key DESC

-- name: checkpoints_by_label
SELECT row_key, step, label, head, meta FROM checkpoint INDEXED BY checkpoint_by_label
WHERE row_key >> 32 = ?1 AND label = ?2 AND row_key <= ?3 ORDER BY row_key DESC

-- name: labelled
SELECT row_key FROM checkpoint NOT INDEXED WHERE row_key BETWEEN ?1 AND ?2 AND label = ?3 ORDER BY row_key DESC

-- name: refs
SELECT row_key, step, label, head, meta, refs FROM checkpoint
WHERE row_key BETWEEN ?1 AND ?2 ORDER BY row_key

-- name: walk
SELECT row_key, step, label, head, meta, refs, skeleton FROM checkpoint
WHERE row_key >= ?1 AND row_key < ?2 ORDER BY row_key

-- name: last_of
SELECT last FROM thread WHERE thread_no = ?1

-- name: cells
SELECT row_key, row_key & 0xffffffff, cells FROM checkpoint WHERE row_key BETWEEN ?1 AND ?2 AND cells IS NOT NULL

-- name: cells_of_one
SELECT row_key, row_key & 0xffffffff, cells FROM checkpoint WHERE row_key = ?1 AND cells IS NOT NULL

-- name: segments
-- Segments are keyed by their last commit: the last one that overlaps is the first whose key is not below ?2.
SELECT row_key, first_seq, cells FROM segment
WHERE row_key >= ?1
  AND row_key <= coalesce(
      (SELECT min(row_key) FROM segment WHERE row_key BETWEEN ?2 AND ?2 | 0xffffffff), ?2 | 0xffffffff)
  AND first_seq <= ?2 & 0xffffffff

-- name: forks
SELECT thread FROM fork NOT INDEXED WHERE origin = ?1 ORDER BY thread

-- name: forks_in_index
-- Reads the whole second tree, which has another order. Used only by maintenance and forks.
SELECT thread FROM fork INDEXED BY fork_by_thread WHERE origin = ?1 ORDER BY thread

-- name: value
SELECT value_no, pieces FROM value WHERE namespace = ?1 AND digest = ?2

-- name: value_pieces
SELECT piece_key, size, data FROM value_piece WHERE piece_key BETWEEN ?1 << 24 AND ?1 << 24 | 0xffffff ORDER BY piece_key
