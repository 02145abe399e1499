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

-- name: delete_entries
DELETE FROM hf.entry WHERE row_key IN (
    SELECT row_key FROM hf.entry WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
    ORDER BY row_key LIMIT $2)
RETURNING row_key

-- name: delete_moves
DELETE FROM hf.move WHERE row_key IN (
    SELECT row_key FROM hf.move WHERE row_key BETWEEN $1::bigint << 32 AND ($1::bigint << 32) + 4294967295
    ORDER BY row_key LIMIT $2)
RETURNING row_key

-- name: changed_since_sweep
-- The threads that changed since their last sweep. The state is a sum of checksums and the last seq, which change with
-- every write, plus a term for each fork that was not dropped. Other columns are not compared: damage in one of them must
-- not hide a change.
SELECT t.thread_no FROM hf.thread AS t {NOT INDEXED} LEFT JOIN hf.sweep ON sweep.thread_no = t.thread_no
WHERE t.namespace = $1 AND t.thread_no > $2 AND (sweep.checksum IS NULL OR (sweep.state =
      t.checksum * 1073741824 + t.deleted_checksum + t.last + coalesce((
          SELECT sum(f.deleted_checksum + 1)::bigint FROM hf.fork JOIN hf.thread AS f ON f.thread_no = fork.thread
          WHERE fork.origin = t.thread_no AND f.name IS NOT NULL), 0)) IS NOT TRUE)
ORDER BY t.thread_no LIMIT $3

-- name: mark_unswept
INSERT INTO hf.sweep (thread_no, state, last, blobs)
SELECT t.thread_no, t.checksum * 1073741824 + t.deleted_checksum + t.last + coalesce((
          SELECT sum(f.deleted_checksum + 1)::bigint FROM hf.fork JOIN hf.thread AS f ON f.thread_no = fork.thread
          WHERE fork.origin = t.thread_no AND f.name IS NOT NULL), 0), t.last, $2::bytea
FROM hf.thread AS t WHERE t.thread_no = $1
ON CONFLICT (thread_no)
DO UPDATE SET state = excluded.state, last = excluded.last, blobs = excluded.blobs, checksum = NULL

-- name: sweep
SELECT thread_no, state, last, blobs, checksum FROM hf.sweep WHERE thread_no = $1

-- name: record_sweep
UPDATE hf.sweep SET state = $2, blobs = $4, checksum = $5 WHERE thread_no = $1 AND last = $3 AND checksum IS NULL

-- name: sweeps
SELECT t.thread_no, sweep.thread_no, sweep.state, sweep.last, sweep.blobs, sweep.checksum
FROM hf.thread AS t {NOT INDEXED} LEFT JOIN hf.sweep ON sweep.thread_no = t.thread_no
WHERE t.namespace = $1 AND t.thread_no > $2 ORDER BY t.thread_no LIMIT $3

-- name: delete_sweep
DELETE FROM hf.sweep WHERE thread_no = $1

-- name: advance_epoch
INSERT INTO hf.epoch (namespace, value) VALUES ($1, 2)
ON CONFLICT (namespace) DO UPDATE SET value = epoch.value + 1 RETURNING value

-- name: old_blobs
SELECT blob_no, digest FROM hf.blob WHERE namespace = $1 AND stamp < $2 AND blob_no > $3 ORDER BY blob_no LIMIT $4

-- name: delete_blob
DELETE FROM hf.blob WHERE blob_no = $1 AND stamp < $2 RETURNING blob_no

-- name: delete_pieces
DELETE FROM hf.piece WHERE piece_key BETWEEN $1::bigint << 24 AND ($1::bigint << 24) + 16777215
