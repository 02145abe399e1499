-- Only one transaction writes at a time, so that `lock_…` statements just read.

-- name: advance_thread
-- Writes only if the thread is as the commit expects it, and has the checkpoint that should be its newest.
UPDATE thread SET head = ?2, move = ?3, last = ?2, head_id = ?4, fence = ?5, step = ?6, status = ?7,
    agent = ?8, size = ?9, updated_at = ?10, checksum = ?11
WHERE thread_no = ?1 AND namespace = ?12 AND name = ?13 AND head = ?14 AND move = ?15 AND last = ?16 AND fence IS ?17
  AND EXISTS (SELECT 1 FROM checkpoint WHERE row_key = ?1 << 32 | ?16)

-- name: lock_thread
SELECT * FROM thread WHERE thread_no = ?1

-- name: newest
SELECT row_key FROM checkpoint WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key DESC LIMIT 1

-- name: next_thread_number
-- PostgreSQL needs the namespace and the digest. Here the condition only uses both parameters; it is always true.
SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'thread' AND (?1 IS NOT NULL OR ?2 IS NOT NULL)

-- name: insert_thread
INSERT INTO thread (thread_no, namespace, name, name_digest, head, move, last, deleted, deleted_checksum, head_id,
    fence, step, status, agent, size, updated_at, checksum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)

-- name: update_thread
UPDATE thread SET head = ?2, move = ?3, last = ?4, head_id = ?5, fence = ?6, step = ?7, status = ?8,
    agent = ?9, size = ?10, updated_at = ?11, checksum = ?12
WHERE thread_no = ?1

-- name: count_deleted
UPDATE thread SET deleted = ?2, deleted_checksum = ?3 WHERE thread_no = ?1

-- name: forget_name
UPDATE thread SET name = NULL, name_digest = NULL, agent = NULL, fence = NULL, checksum = ?2 WHERE thread_no = ?1

-- name: delete_thread
DELETE FROM thread WHERE thread_no = ?1

-- name: insert_checkpoint
INSERT INTO checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: whole_checkpoint
SELECT row_key, step, label, head, meta, refs, skeleton, cells FROM checkpoint WHERE row_key = ?1

-- name: delete_checkpoint
DELETE FROM checkpoint WHERE row_key = ?1

-- name: insert_move
INSERT INTO move (row_key, head, made_at) VALUES (?1, ?2, ?3)

-- name: move
SELECT head, made_at FROM move WHERE row_key = ?1

-- name: insert_fork
-- A fork uses cells of its origin, and of every thread that the origin is a fork of.
INSERT OR IGNORE INTO fork (origin, thread)
SELECT ?1, ?2 UNION SELECT origin, ?2 FROM fork WHERE thread = ?1

-- name: origins
SELECT origin FROM fork WHERE thread = ?1 ORDER BY origin

-- name: delete_forks
DELETE FROM fork WHERE origin = ?1 OR thread = ?1

-- name: insert_epoch
INSERT INTO epoch (namespace, value) VALUES (?1, 1) ON CONFLICT (namespace) DO NOTHING

-- name: lock_epoch
SELECT value FROM epoch WHERE namespace = ?1

-- name: lock_blob
SELECT digest, blob_no, stamp FROM blob WHERE namespace = ?1 AND digest = ?2

-- name: stamp_blob
UPDATE blob SET stamp = ?2 WHERE blob_no = ?1

-- name: insert_blob
INSERT INTO blob (namespace, digest, pieces, stamp) VALUES (?1, ?2, ?3, ?4) RETURNING blob_no

-- name: insert_piece
INSERT INTO piece (piece_key, size, data) VALUES (?1, ?2, ?3)
