-- name: check_numbers
SELECT thread_no FROM hf.thread {NOT INDEXED} WHERE namespace = $1 ORDER BY thread_no

-- name: check_threads
-- All columns are named: this fails if the schema itself is damaged.
SELECT thread_no, namespace, name, name_digest, head, move, last, deleted, deleted_checksum, head_id, fence, step, status,
    agent, size, updated_at, checksum
FROM hf.thread {NOT INDEXED} WHERE thread_no > $1 ORDER BY thread_no LIMIT $2

-- name: check_runs
SELECT * FROM hf.run {NOT INDEXED} WHERE thread_no > $1 ORDER BY thread_no LIMIT $2

-- name: check_sweeps
SELECT thread_no, state, last, blobs, checksum FROM hf.sweep WHERE thread_no > $1 ORDER BY thread_no LIMIT $2

-- name: check_acts
SELECT act.key, act.thread_no, act.number, act.checksum, run.entries
FROM hf.act LEFT JOIN hf.run ON run.thread_no = act.thread_no AND run.namespace = act.namespace
WHERE act.namespace = $1 AND act.key > $2 ORDER BY act.key LIMIT $3

-- name: orphans
SELECT 'checkpoints', row_key >> 32 FROM hf.checkpoint
WHERE NOT EXISTS (SELECT 1 FROM hf.thread {NOT INDEXED} WHERE thread_no = row_key >> 32)
UNION
SELECT 'segments', row_key >> 32 FROM hf.segment
WHERE NOT EXISTS (SELECT 1 FROM hf.thread {NOT INDEXED} WHERE thread_no = row_key >> 32)
UNION
SELECT 'moves', row_key >> 32 FROM hf.move
WHERE NOT EXISTS (SELECT 1 FROM hf.thread {NOT INDEXED} WHERE thread_no = row_key >> 32)
UNION
SELECT 'a run', run.thread_no FROM hf.run {NOT INDEXED}
WHERE NOT EXISTS (SELECT 1 FROM hf.thread {NOT INDEXED} WHERE thread.thread_no = run.thread_no)
UNION
SELECT 'journal entries', row_key >> 32 FROM hf.entry
WHERE NOT EXISTS (SELECT 1 FROM hf.thread {NOT INDEXED} WHERE thread_no = row_key >> 32)
UNION
SELECT 'a fork record', origin FROM hf.fork WHERE NOT EXISTS (SELECT 1 FROM hf.thread {NOT INDEXED} WHERE thread_no = origin)
UNION
SELECT 'a fork record', thread FROM hf.fork WHERE NOT EXISTS (SELECT 1 FROM hf.thread {NOT INDEXED} WHERE thread_no = fork.thread)
UNION
SELECT 'a sweep record', sweep.thread_no FROM hf.sweep
WHERE NOT EXISTS (SELECT 1 FROM hf.thread {NOT INDEXED} WHERE thread.thread_no = sweep.thread_no)

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

-- Many threads at once: those of a namespace with numbers from $2 to $3. Of longer threads and journals than $4, nothing
-- is selected. In SQLite, a CROSS JOIN reads nothing of other namespaces.

-- name: many_threads
SELECT * FROM hf.thread {NOT INDEXED} WHERE namespace = $1 AND thread_no BETWEEN $2 AND $3 ORDER BY thread_no

-- name: many_checkpoints
SELECT row_key, checkpoint.step, label, checkpoint.head, meta, refs, skeleton
FROM hf.thread {NOT INDEXED CROSS} JOIN hf.checkpoint ON row_key BETWEEN thread_no << 32 AND (thread_no << 32) + 4294967295
WHERE namespace = $1 AND thread_no BETWEEN $2 AND $3 AND last <= $4 ORDER BY thread_no, row_key

-- name: many_moves
SELECT row_key, move.head
FROM hf.thread {NOT INDEXED CROSS} JOIN hf.move ON row_key BETWEEN thread_no << 32 AND (thread_no << 32) + 4294967295
WHERE namespace = $1 AND thread_no BETWEEN $2 AND $3 AND last <= $4 ORDER BY thread_no, row_key

-- name: many_segments
SELECT row_key, first_seq
FROM hf.thread {NOT INDEXED CROSS} JOIN hf.segment ON row_key BETWEEN thread_no << 32 AND (thread_no << 32) + 4294967295
WHERE namespace = $1 AND thread_no BETWEEN $2 AND $3 AND last <= $4 ORDER BY thread_no, row_key

-- name: many_runs
SELECT run.* FROM hf.thread {NOT INDEXED CROSS} JOIN hf.run {NOT INDEXED} USING (thread_no)
WHERE thread.namespace = $1 AND thread_no BETWEEN $2 AND $3 ORDER BY thread_no

-- name: many_entries
SELECT row_key, record, topic
FROM hf.thread {NOT INDEXED CROSS} JOIN hf.entry ON row_key BETWEEN thread_no << 32 AND (thread_no << 32) + 4294967295
WHERE thread.namespace = $1 AND thread_no BETWEEN $2 AND $3
  AND coalesce((SELECT entries FROM hf.run WHERE run.thread_no = thread.thread_no), 0) <= $4
ORDER BY thread_no, row_key

-- name: many_forks
SELECT DISTINCT origin FROM hf.fork {NOT INDEXED} WHERE origin BETWEEN $1 AND $2
