-- Only one transaction writes at a time, so that `lock_…` statements just read.

-- name: advance_thread
-- Writes only if the thread is as the commit expects it, and has the checkpoint that should be its newest.
UPDATE thread SET head = ?2, move = ?3, last = ?2, head_id = ?4, fence = ?5, step = ?6, status = ?7,
    agent = ?8, size = ?9, updated_at = ?10, checksum = ?11
WHERE thread_no = ?1 AND namespace = ?12 AND name = ?13 AND head = ?14 AND move = ?15 AND last = ?16 AND fence IS ?17
  AND EXISTS (SELECT 1 FROM checkpoint WHERE row_key = ?1 << 32 | ?16)

-- name: next_thread_number
-- PostgreSQL needs the namespace and the digest. Here the condition only uses both parameters; it is always true.
SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'thread' AND (?1 IS NOT NULL OR ?2 IS NOT NULL)

-- name: whole_checkpoint
SELECT row_key, step, label, head, meta, refs, skeleton, cells FROM checkpoint WHERE row_key = ?1

-- name: delete_checkpoint
DELETE FROM checkpoint WHERE row_key = ?1

-- name: insert_blob
INSERT INTO blob (namespace, digest, pieces, stamp) VALUES (?1, ?2, ?3, ?4) RETURNING blob_no
