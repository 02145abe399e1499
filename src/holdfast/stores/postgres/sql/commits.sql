-- name: advance_thread
UPDATE hf.thread SET head = $2, move = $3, last = $2, head_id = $4, fence = $5, step = $6,
    status = $7, agent = $8, size = $9, updated_at = $10, checksum = $11
WHERE thread_no = $1 AND namespace = $12 AND name = $13 AND head = $14 AND move = $15 AND last = $16
  AND fence IS NOT DISTINCT FROM $17

-- name: next_thread_number
-- Only for a free name, because a number is used up when it is assigned. The bits of the number are reversed.
SELECT reverse(pg_catalog.nextval(E'hf.thread_number'::regclass)::int::bit(31)::text)::bit(31)::int::bigint
WHERE NOT EXISTS (SELECT 1 FROM hf.thread WHERE namespace = $1 AND name_digest = $2)

-- name: rewrite_checkpoint
UPDATE hf.checkpoint SET step = $2, label = $3, head = $4, meta = $5, refs = $6, skeleton = $7 WHERE row_key = $1

-- name: drop_cells
UPDATE hf.checkpoint SET cells = NULL WHERE row_key = ANY($1::bigint[])

-- name: insert_blob
-- The bits of the number are reversed.
INSERT INTO hf.blob (blob_no, namespace, digest, pieces, stamp)
VALUES (reverse(pg_catalog.nextval(E'hf.blob_number'::regclass)::bit(39)::text)::bit(39)::bigint, $1, $2, $3, $4)
ON CONFLICT (namespace, digest) DO NOTHING RETURNING blob_no
