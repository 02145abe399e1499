-- name: check_threads
SELECT * FROM hf.thread WHERE thread_no > $1 ORDER BY thread_no LIMIT $2

-- name: check_runs
SELECT * FROM hf.run WHERE thread_no > $1 ORDER BY thread_no LIMIT $2

-- name: orphans
SELECT 'checkpoints', row_key >> 32 FROM hf.checkpoint
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = row_key >> 32)
UNION
SELECT 'segments', row_key >> 32 FROM hf.segment
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = row_key >> 32)
UNION
SELECT 'moves', row_key >> 32 FROM hf.move
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = row_key >> 32)
UNION
SELECT 'a run', run.thread_no FROM hf.run
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread.thread_no = run.thread_no)
UNION
SELECT 'journal entries', row_key >> 32 FROM hf.effect
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = row_key >> 32)
UNION
SELECT 'a fork entry', origin FROM hf.fork WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = origin)
UNION
SELECT 'a fork entry', thread FROM hf.fork WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = fork.thread)

-- name: values_in_pieces
SELECT digest FROM hf.value
WHERE namespace = $1
  AND pieces <> (SELECT count(*) FROM hf.value_piece
                 WHERE piece_key BETWEEN value_no << 24 AND (value_no << 24) + 16777215)

-- name: orphan_pieces
SELECT count(*) FROM hf.value_piece WHERE NOT EXISTS (SELECT 1 FROM hf.value WHERE value_no = piece_key >> 24)

-- name: check_checkpoints
SELECT row_key, step, label, head, meta, refs, skeleton FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: check_moves
SELECT row_key & 4294967295, head FROM hf.move
WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295 ORDER BY row_key

-- name: check_segments
SELECT row_key & 4294967295, first_seq FROM hf.segment
WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295 ORDER BY row_key

-- name: check_effects
SELECT row_key, record, mark FROM hf.effect WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: check_run_of
SELECT namespace, entries FROM hf.run WHERE thread_no = $1
