-- name: cells_of
SELECT row_key, cells FROM hf.checkpoint WHERE row_key = ANY($1::bigint[]) AND cells IS NOT NULL

-- name: segments_of
SELECT row_key, first_seq, cells FROM hf.segment WHERE row_key = ANY($1::bigint[])

-- name: segments_until
SELECT row_key, first_seq, cells FROM hf.segment WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: cells_until
SELECT row_key, row_key & 4294967295, cells FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 AND cells IS NOT NULL ORDER BY row_key LIMIT $3

-- name: drop_cells
UPDATE hf.checkpoint SET cells = NULL WHERE row_key = ANY($1::bigint[])

-- name: drop_segments
DELETE FROM hf.segment WHERE row_key = ANY($1::bigint[])

-- name: insert_segment
INSERT INTO hf.segment (row_key, first_seq, cells) VALUES ($1, $2, $3)

-- name: oldest_checkpoints
SELECT row_key FROM hf.checkpoint WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
ORDER BY row_key LIMIT $2

-- name: move_cells
-- The row key stays the same, so the segment's checksum, which includes it, stays valid.
INSERT INTO hf.segment (row_key, first_seq, cells)
SELECT row_key, row_key & 4294967295, cells FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 AND cells IS NOT NULL

-- name: delete_checkpoints
DELETE FROM hf.checkpoint WHERE row_key BETWEEN $1 AND $2

-- name: oldest_segments
SELECT row_key FROM hf.segment WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
ORDER BY row_key LIMIT $2

-- name: delete_segments
DELETE FROM hf.segment WHERE row_key BETWEEN $1 AND $2

-- name: delete_moves
DELETE FROM hf.move WHERE row_key IN (
    SELECT row_key FROM hf.move WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
    ORDER BY row_key LIMIT $2)

-- name: some_move
SELECT 1 FROM hf.move WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295 LIMIT 1

-- name: some_effect
SELECT 1 FROM hf.effect WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295 LIMIT 1
