-- name: check_numbers
SELECT thread_no FROM hf.thread WHERE namespace = $1 ORDER BY thread_no

-- name: check_threads
SELECT * FROM hf.thread WHERE thread_no > $1 ORDER BY thread_no LIMIT $2

-- name: check_runs
SELECT * FROM hf.run WHERE thread_no > $1 ORDER BY thread_no LIMIT $2

-- name: check_sweeps
SELECT thread_no, state, last, blobs, checksum FROM hf.sweep WHERE thread_no > $1 ORDER BY thread_no LIMIT $2

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
SELECT 'journal entries', row_key >> 32 FROM hf.entry
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = row_key >> 32)
UNION
SELECT 'a fork entry', origin FROM hf.fork WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = origin)
UNION
SELECT 'a fork entry', thread FROM hf.fork WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread_no = fork.thread)
UNION
SELECT 'a sweep', sweep.thread_no FROM hf.sweep
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE thread.thread_no = sweep.thread_no)

-- name: incomplete_blobs
SELECT digest FROM hf.blob
WHERE namespace = $1
  AND pieces <> (SELECT count(*) FROM hf.piece
                 WHERE piece_key BETWEEN blob_no << 24 AND (blob_no << 24) + 16777215)

-- name: orphan_pieces
SELECT count(*) FROM hf.piece WHERE NOT EXISTS (SELECT 1 FROM hf.blob WHERE blob_no = piece_key >> 24)

-- name: check_checkpoints
SELECT row_key, step, label, head, meta, refs, skeleton FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: check_entries
SELECT row_key, record, topic FROM hf.entry WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: check_moves
SELECT row_key & 4294967295, head FROM hf.move
WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295 ORDER BY row_key

-- name: check_segments
SELECT row_key & 4294967295, first_seq FROM hf.segment
WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295 ORDER BY row_key
