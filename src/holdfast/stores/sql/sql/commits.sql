-- name: lock_thread
SELECT * FROM hf.thread WHERE thread_no = $1 FOR UPDATE

-- name: newest
SELECT row_key FROM hf.checkpoint WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
ORDER BY row_key DESC LIMIT 1

-- name: insert_thread
-- Waits for another transaction that creates a thread with the same name, and fails if that one commits.
INSERT INTO hf.thread (thread_no, namespace, name, name_digest, head, move, last, deleted, deleted_checksum, head_id,
    fence, step, status, agent, size, updated_at, checksum)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)

-- name: update_thread
UPDATE hf.thread SET head = $2, move = $3, last = $4, head_id = $5, fence = $6, step = $7, status = $8,
    agent = $9, size = $10, updated_at = $11, checksum = $12
WHERE thread_no = $1

-- name: count_deleted
UPDATE hf.thread SET deleted = $2, deleted_checksum = $3 WHERE thread_no = $1

-- name: forget_name
UPDATE hf.thread SET name = NULL, name_digest = NULL, agent = NULL, fence = NULL, checksum = $2
WHERE thread_no = $1

-- name: delete_thread
DELETE FROM hf.thread WHERE thread_no = $1

-- name: insert_checkpoint
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: insert_move
INSERT INTO hf.move (row_key, head, made_at) VALUES ($1, $2, $3)

-- name: move
SELECT head, made_at FROM hf.move WHERE row_key = $1

-- name: insert_fork
-- A fork uses cells of its origin, and of every thread that the origin is a fork of.
INSERT INTO hf.fork (origin, thread)
SELECT $1::bigint, $2::bigint UNION SELECT origin, $2::bigint FROM hf.fork WHERE thread = $1::bigint
ON CONFLICT (origin, thread) DO NOTHING

-- name: origins
SELECT origin FROM hf.fork WHERE thread = $1 ORDER BY origin

-- name: delete_forks
DELETE FROM hf.fork WHERE origin = $1 OR thread = $1

-- name: insert_epoch
INSERT INTO hf.epoch (namespace, value) VALUES ($1, 1) ON CONFLICT (namespace) DO NOTHING

-- name: lock_epoch
-- Locked until the commit is done: a new epoch waits for the commits that use the old one.
SELECT value FROM hf.epoch WHERE namespace = $1 FOR SHARE

-- name: lock_blob
SELECT digest, blob_no, stamp FROM hf.blob WHERE namespace = $1 AND digest = $2 FOR UPDATE

-- name: stamp_blob
UPDATE hf.blob SET stamp = $2 WHERE blob_no = $1

-- name: insert_piece
INSERT INTO hf.piece (piece_key, size, data) VALUES ($1, $2, $3)
