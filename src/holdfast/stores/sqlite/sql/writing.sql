-- name: last_thread_number
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'thread'

-- name: position
-- The thread, the newest key of its checkpoints, and its run, in one statement because every save needs them.
SELECT
    (SELECT row_key FROM checkpoint WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff
     ORDER BY row_key DESC LIMIT 1),
    run.*, thread.*
FROM thread LEFT JOIN run ON run.thread_no = ?1 WHERE thread.thread_no = ?1

-- name: insert_thread
INSERT INTO thread (thread_no, namespace, name, name_hash, created_at, head, move, last, count, head_id, step, status,
    agent, size, updated_at, checksum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)

-- name: update_thread
UPDATE thread SET head = ?2, move = ?3, last = ?4, count = ?5, head_id = ?6, step = ?7, status = ?8, agent = ?9,
    size = ?10, updated_at = ?11, checksum = ?12
WHERE thread_no = ?1

-- name: forget_name
UPDATE thread SET name = NULL, name_hash = NULL, agent = NULL, count = 0, checksum = ?2 WHERE thread_no = ?1

-- name: delete_thread
DELETE FROM thread WHERE thread_no = ?1

-- name: insert_checkpoint
INSERT INTO checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: cells_of
SELECT cells FROM checkpoint WHERE row_key = ?1

-- name: delete_checkpoint
DELETE FROM checkpoint WHERE row_key = ?1

-- name: insert_move
INSERT INTO move (row_key, head, made_at) VALUES (?1, ?2, ?3)

-- name: delete_moves
DELETE FROM move WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff

-- name: insert_fork
-- A fork uses cells of its origin, and of every thread that the origin is a fork of.
INSERT OR IGNORE INTO fork (origin, thread)
SELECT ?1, ?2 UNION SELECT origin, ?2 FROM fork WHERE thread = ?1

-- name: origins
SELECT origin FROM fork WHERE thread = ?1 ORDER BY origin

-- name: delete_forks
DELETE FROM fork WHERE origin = ?1 OR thread = ?1

-- name: epoch
SELECT value FROM setting WHERE name = 'epoch'

-- name: advance_epoch
UPDATE setting SET value = value + 1 WHERE name = 'epoch' RETURNING value

-- name: find_value
SELECT value_no, stamp FROM value WHERE namespace = ?1 AND digest = ?2

-- name: stamp_value
UPDATE value SET stamp = ?2 WHERE value_no = ?1

-- name: insert_value
INSERT INTO value (namespace, digest, pieces, stamp) VALUES (?1, ?2, ?3, ?4) RETURNING value_no

-- name: insert_piece
INSERT INTO value_piece (piece_key, size, data) VALUES (?1, ?2, ?3)

-- name: stale_values
SELECT value_no, digest FROM value WHERE namespace = ?1 AND stamp < ?2 AND value_no > ?3 ORDER BY value_no LIMIT ?4

-- name: delete_value
DELETE FROM value WHERE value_no = ?1 AND stamp < ?2

-- name: delete_pieces
DELETE FROM value_piece WHERE piece_key BETWEEN ?1 << 24 AND ?1 << 24 | 0xffffff
