-- name: segment_of
-- The key is only the last commit of a segment. If it was merged with earlier ones since, `first_seq` differs.
SELECT cells FROM hf.segment WHERE row_key = $1 AND first_seq = $2

-- name: segments_until
SELECT row_key, first_seq, cells FROM hf.segment WHERE row_key BETWEEN $1 AND $2 ORDER BY row_key LIMIT $3

-- name: cells_until
SELECT row_key, row_key & 4294967295, cells FROM hf.checkpoint
WHERE row_key BETWEEN $1 AND $2 AND cells IS NOT NULL ORDER BY row_key LIMIT $3

-- name: delete_segment
DELETE FROM hf.segment WHERE row_key = $1

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

-- name: some_entry
SELECT 1 FROM hf.entry WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295 LIMIT 1

-- name: delete_entries
DELETE FROM hf.entry WHERE row_key IN (
    SELECT row_key FROM hf.entry WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
    ORDER BY row_key LIMIT $2)

-- name: some_move
SELECT 1 FROM hf.move WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295 LIMIT 1

-- name: delete_moves
DELETE FROM hf.move WHERE row_key IN (
    SELECT row_key FROM hf.move WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
    ORDER BY row_key LIMIT $2)
