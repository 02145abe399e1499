-- name: thread_by_number
SELECT * FROM hf.thread WHERE thread_no = $1

-- name: has_rows
SELECT EXISTS (SELECT 1 FROM hf.checkpoint WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295)
    OR EXISTS (SELECT 1 FROM hf.segment WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295)

-- name: threads_by_number
SELECT * FROM hf.thread {NOT INDEXED} WHERE namespace = $1 AND thread_no > $2 ORDER BY thread_no LIMIT $3

-- name: tally
SELECT status, count(*), sum(size)::bigint, sum(last)::bigint, sum(deleted)::bigint, agent FROM hf.thread {NOT INDEXED}
WHERE namespace = $1 AND name IS NOT NULL GROUP BY status, agent

-- name: thread_numbers
-- From the index: used if a page of the table cannot be read.
SELECT thread_no FROM hf.thread {INDEXED BY thread_by_name} WHERE namespace = $1 AND thread_no > $2 ORDER BY thread_no LIMIT $3

-- name: checkpoint
SELECT row_key, step, label, head, meta, refs, skeleton FROM hf.checkpoint WHERE row_key = $1

-- name: checkpoints_down
SELECT row_key, step, label, head, meta FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key DESC LIMIT $3

-- name: refs
SELECT row_key, step, label, head, meta, refs FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key

-- name: walk
SELECT row_key, step, label, head, meta, refs, skeleton FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key

-- name: cells
SELECT row_key, row_key & 4294967295, cells FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 AND cells IS NOT NULL ORDER BY row_key

-- name: cells_of_one
-- Not a range of one row: that would also read the next row before it returns this one.
SELECT row_key, row_key & 4294967295, cells FROM hf.checkpoint WHERE row_key = $1 AND cells IS NOT NULL

-- name: segments
-- Segments are keyed by their last commit: the last one that overlaps is the first whose key is not below $2.
SELECT row_key, first_seq, cells FROM hf.segment
WHERE row_key >= $1::bigint
  AND row_key <= coalesce(
      (SELECT min(row_key) FROM hf.segment WHERE row_key BETWEEN $2::bigint AND $2::bigint | 4294967295),
      $2::bigint | 4294967295)
  AND first_seq <= $2::bigint & 4294967295

-- name: forks
SELECT fork.thread, thread.* FROM hf.fork {NOT INDEXED} LEFT JOIN hf.thread ON thread.thread_no = fork.thread
WHERE fork.origin = $1 ORDER BY fork.thread

-- name: blob
SELECT blob_no, pieces FROM hf.blob WHERE namespace = $1 AND digest = $2

-- name: pieces
SELECT size, data FROM hf.piece
WHERE piece_key BETWEEN $1::bigint << 24 AND ($1::bigint << 24) + 16777215 ORDER BY piece_key
