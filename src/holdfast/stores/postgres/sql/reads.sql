-- name: now
SELECT floor(extract(epoch FROM clock_timestamp())::float8 * 1000000::float8)::bigint

-- name: thread_by_name
SELECT * FROM hf.thread WHERE namespace = $1 AND name_start = substr($2::bytea, 1, 1024) AND name = $2

-- name: thread_by_digest
SELECT * FROM hf.thread WHERE namespace = $1 AND name_digest = $2

-- name: number_of_name
-- Both lookups in one statement, for transactions without a snapshot: a thread that is created meanwhile is seen by
-- both or by neither.
SELECT
    (SELECT thread_no FROM hf.thread
     WHERE namespace = $1 AND name_start = substr($2::bytea, 1, 1024) AND name = $2 LIMIT 1),
    (SELECT thread_no FROM hf.thread WHERE namespace = $1 AND name_digest = $3)

-- name: head
-- Of the thread with a name: the newest key of its checkpoints, its head, and the thread itself.
SELECT
    (SELECT max(row_key) FROM hf.checkpoint
     WHERE row_key BETWEEN thread.thread_no << 32 AND (thread.thread_no << 32) + 4294967295),
    at.row_key, at.step, at.label, at.head, at.meta, at.refs, at.skeleton, thread.*
FROM hf.thread LEFT JOIN hf.checkpoint AS at ON at.row_key = (thread.thread_no << 32) + thread.head
WHERE namespace = $1 AND name_start = substr($2::bytea, 1, 1024) AND name = $2

-- name: threads_from
SELECT * FROM hf.thread
WHERE namespace = $1 AND name IS NOT NULL AND name_start >= substr($2::bytea, 1, 1024) AND name >= $2
ORDER BY name_start, name LIMIT $3

-- name: threads_containing
-- Names that are not ASCII, or have a backslash, are all selected: `encode` writes them with backslashes. The caller
-- compares them.
SELECT * FROM hf.thread
WHERE namespace = $1 AND name IS NOT NULL AND name_start >= substr($2::bytea, 1, 1024) AND name >= $2
  AND position($5::bytea IN name) > 0
  AND (lower(encode(name, 'escape') COLLATE "C") LIKE $4::text OR position('\' IN encode(name, 'escape')) > 0)
ORDER BY name_start, name LIMIT $3

-- name: threads_newest
-- A scan of the table: an index would have to be changed by every save.
SELECT * FROM hf.thread
WHERE namespace = $1 AND name IS NOT NULL
  AND (updated_at < $2 OR (updated_at = $2 AND ($3::bytea IS NULL OR name > $3)))
  AND substr(name, 1, length($5::bytea)) = $5
  AND ($6::text IS NULL OR (position($7::bytea IN name) > 0
       AND (lower(encode(name, 'escape') COLLATE "C") LIKE $6 OR position('\' IN encode(name, 'escape')) > 0)))
ORDER BY updated_at DESC, name LIMIT $4

-- name: metadata
-- Checkpoints of all threads, in the order of their keys.
SELECT row_key, checkpoint.step, label, checkpoint.head, meta, row_key = (thread_no << 32) + thread.head
FROM hf.thread JOIN hf.checkpoint ON row_key BETWEEN thread_no << 32 AND (thread_no << 32) + 4294967295
WHERE namespace = $1 AND name IS NOT NULL AND thread_no >= $2::bigint >> 32 AND row_key > $2
ORDER BY thread_no, row_key LIMIT $3

-- name: checkpoints_by_label
SELECT row_key, step, label, head, meta FROM hf.checkpoint
WHERE label_start = substr($4::bytea, 1, 1024) AND label = $4 AND label IS NOT NULL AND row_key BETWEEN $1 AND $2
ORDER BY row_key DESC LIMIT $3
