-- name: lock_thread
SELECT * FROM hf.thread WHERE thread_no = $1 FOR UPDATE

-- name: newest
SELECT max(row_key) FROM hf.checkpoint
WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295

-- name: advance_thread
UPDATE hf.thread SET head = $2, move = $3, last = $2, head_id = $4, fence = $5, step = $6,
    status = $7, agent = $8, size = $9, updated_at = $10, checksum = $11
WHERE thread_no = $1 AND namespace = $12 AND name = $13 AND head = $14 AND move = $15 AND last = $16
  AND fence IS NOT DISTINCT FROM $17

-- name: next_thread_number
-- Only for a free name, because a number is used up when it is assigned. The bits of the number are reversed.
SELECT reverse(pg_catalog.nextval(E'hf.thread_number'::regclass)::int::bit(31)::text)::bit(31)::int::bigint
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE namespace = $1 AND name_digest = $2)

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

-- name: rewrite_checkpoint
UPDATE hf.checkpoint SET step = $2, label = $3, head = $4, meta = $5, refs = $6, skeleton = $7 WHERE row_key = $1

-- name: drop_cells
UPDATE hf.checkpoint SET cells = NULL WHERE row_key = ANY($1::bigint[])

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

-- name: insert_blob
-- The bits of the number are reversed.
INSERT INTO hf.blob (blob_no, namespace, digest, pieces, stamp)
VALUES (reverse(pg_catalog.nextval(E'hf.blob_number'::regclass)::bit(39)::text)::bit(39)::bigint, $1, $2, $3, $4)
ON CONFLICT (namespace, digest) DO NOTHING RETURNING blob_no

-- name: insert_piece
INSERT INTO hf.piece (piece_key, size, data) VALUES ($1, $2, $3)
