-- name: segment_of
-- The key is only the last commit of a segment. If it was merged with earlier ones since, `first_seq` differs.
SELECT cells FROM segment WHERE row_key = ?1 AND first_seq = ?2

-- name: segments_until
SELECT row_key, first_seq, cells FROM segment WHERE row_key BETWEEN ?1 AND ?2 ORDER BY row_key LIMIT ?3

-- name: cells_until
SELECT row_key, row_key & 0xffffffff, cells FROM checkpoint
WHERE row_key BETWEEN ?1 AND ?2 AND cells IS NOT NULL ORDER BY row_key LIMIT ?3

-- name: delete_segment
DELETE FROM segment WHERE row_key = ?1

-- name: insert_segment
INSERT INTO segment (row_key, first_seq, cells) VALUES (?1, ?2, ?3)

-- name: oldest_checkpoints
SELECT row_key FROM checkpoint WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key LIMIT ?2

-- name: move_cells
-- The row key stays the same, so the segment's checksum, which includes it, stays valid.
INSERT INTO segment (row_key, first_seq, cells)
SELECT row_key, row_key & 0xffffffff, cells FROM checkpoint
WHERE row_key BETWEEN ?1 AND ?2 AND cells IS NOT NULL

-- name: delete_checkpoints
DELETE FROM checkpoint WHERE row_key BETWEEN ?1 AND ?2

-- name: oldest_segments
SELECT row_key FROM segment WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key LIMIT ?2

-- name: delete_segments
DELETE FROM segment WHERE row_key BETWEEN ?1 AND ?2

-- name: some_entry
SELECT 1 FROM entry WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff LIMIT 1

-- name: delete_entries
DELETE FROM entry WHERE row_key IN (
    SELECT row_key FROM entry WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key LIMIT ?2)

-- name: some_move
SELECT 1 FROM move WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff LIMIT 1

-- name: delete_moves
DELETE FROM move WHERE row_key IN (
    SELECT row_key FROM move WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key LIMIT ?2)

-- name: free_pages
PRAGMA freelist_count

-- name: vacuum
PRAGMA incremental_vacuum(256)
