-- name: many_names
-- The numbers that the two lookups of each name find.
SELECT thread_no,
    (SELECT thread_no FROM hf.thread
     WHERE namespace = one.namespace AND name_start = substr(one.name, 1, 1024) AND name = one.name LIMIT 1),
    (SELECT thread_no FROM hf.thread WHERE namespace = one.namespace AND name_digest = one.name_digest)
FROM hf.thread AS one
WHERE namespace = $1 AND thread_no BETWEEN $2 AND $3 AND name IS NOT NULL
