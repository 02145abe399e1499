-- name: lock_threads
-- Ordered by number, so that two transactions that need several threads never wait for each other.
SELECT * FROM hf.thread WHERE thread_no = ANY($1::bigint[]) ORDER BY thread_no FOR UPDATE

-- name: newest
SELECT max(row_key) FROM hf.checkpoint
WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295

-- name: next_thread_number
-- Only for a free name, because a number is used up when it is assigned.
SELECT pg_catalog.nextval(E'hf.thread_number'::regclass)
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE namespace = $1 AND name_digest = $2)

-- name: next_value_numbers
SELECT pg_catalog.nextval(E'hf.value_number'::regclass) FROM generate_series(1::bigint, $1::bigint)

-- name: insert_thread
-- Waits for another transaction that creates a thread with the same name, and fails if that one commits.
INSERT INTO hf.thread (thread_no, namespace, name, name_hash, created_at, head, move, last, count, head_id, step, status,
    agent, size, updated_at, checksum, version, name_digest)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)

-- name: update_thread
UPDATE hf.thread SET head = $2, move = $3, last = $4, count = $5, head_id = $6, step = $7, status = $8, agent = $9,
    size = $10, updated_at = $11, checksum = $12, version = $13
WHERE thread_no = $1

-- name: forget_name
UPDATE hf.thread
SET name = NULL, name_hash = NULL, name_digest = NULL, agent = NULL, count = 0, checksum = $2, version = version + 1
WHERE thread_no = $1

-- name: delete_thread
DELETE FROM hf.thread WHERE thread_no = $1

-- name: insert_checkpoint
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: bury
UPDATE hf.checkpoint SET step = $2, label = $3, head = $4, meta = $5, refs = $6, skeleton = $7 WHERE row_key = $1

-- name: checkpoints_of
SELECT row_key, step, label, head, meta, refs, skeleton FROM hf.checkpoint WHERE row_key = ANY($1::bigint[])
ORDER BY row_key

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

-- name: begin_epochs
INSERT INTO hf.epoch (namespace, value) VALUES ($1, 1) ON CONFLICT (namespace) DO NOTHING

-- name: epoch
-- Locked until the commit is done: a new epoch waits for the commits that use the old one.
SELECT value FROM hf.epoch WHERE namespace = $1 FOR SHARE

-- name: advance_epoch
INSERT INTO hf.epoch (namespace, value) VALUES ($1, 2)
ON CONFLICT (namespace) DO UPDATE SET value = epoch.value + 1 RETURNING value

-- name: lock_values
SELECT digest, value_no, stamp FROM hf.value WHERE namespace = $1 AND digest = ANY($2::bytea[])
ORDER BY digest FOR UPDATE

-- name: stamp_values
UPDATE hf.value SET stamp = $2 WHERE value_no = ANY($1::bigint[])

-- name: insert_value
INSERT INTO hf.value (value_no, namespace, digest, pieces, stamp) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (namespace, digest) DO NOTHING RETURNING value_no

-- name: insert_piece
INSERT INTO hf.value_piece (piece_key, size, data) VALUES ($1, $2, $3)

-- name: delete_values
DELETE FROM hf.value WHERE value_no = ANY($1::bigint[]) AND stamp < $2 RETURNING value_no

-- name: delete_pieces
DELETE FROM hf.value_piece WHERE piece_key BETWEEN $1::bigint << 24 AND ($1::bigint << 24) + 16777215
