-- name: thread_by_name
SELECT * FROM thread INDEXED BY thread_by_name WHERE namespace = ?1 AND name = ?2

-- name: thread_by_digest
-- The digest covers the namespace. A row whose namespace was damaged is found, and does not match.
SELECT * FROM thread INDEXED BY thread_by_digest WHERE name_digest = ?2 AND ?1 IS NOT NULL

-- name: number_of_name
SELECT
    (SELECT thread_no FROM thread INDEXED BY thread_by_name WHERE namespace = ?1 AND name = ?2),
    (SELECT thread_no FROM thread INDEXED BY thread_by_digest WHERE name_digest = ?3)

-- name: beside_name
-- Whether the entries on both sides of a name that is not in the index are entries of this index. They are not if a page
-- was swapped with one of `thread_by_digest`: then both lookups miss the name.
SELECT coalesce((
    SELECT typeof(name) IN ('blob', 'null') FROM thread INDEXED BY thread_by_name
    WHERE (namespace, name) > (?1, ?2) ORDER BY namespace, name LIMIT 1), 1)
AND coalesce((
    SELECT typeof(name) IN ('blob', 'null') FROM thread INDEXED BY thread_by_name
    WHERE (namespace, name) < (?1, ?2) ORDER BY namespace DESC, name DESC LIMIT 1), 1)

-- name: head
-- Of the thread with a name: the newest key of its checkpoints, its head, and the thread itself.
SELECT
    (SELECT row_key FROM checkpoint WHERE row_key BETWEEN thread_no << 32 AND thread_no << 32 | 0xffffffff
     ORDER BY row_key DESC LIMIT 1),
    at.row_key, at.step, at.label, at.head, at.meta, at.refs, at.skeleton, thread.*
FROM thread INDEXED BY thread_by_name LEFT JOIN checkpoint AS at ON at.row_key = thread_no << 32 | thread.head
WHERE namespace = ?1 AND name = ?2

-- name: threads_from
SELECT * FROM thread INDEXED BY thread_by_name
WHERE namespace = ?1 AND name >= ?2 ORDER BY name LIMIT ?3

-- name: threads_containing
-- Names that are not ASCII are all selected if they have ?5: SQLite knows no other letters. The caller compares them.
SELECT * FROM thread INDEXED BY thread_by_name
WHERE namespace = ?1 AND name >= ?2 AND instr(name, ?5)
  AND (CAST(name AS TEXT) LIKE ?4 ESCAPE '\' OR length(CAST(name AS TEXT)) <> length(name))
ORDER BY name LIMIT ?3

-- name: threads_newest
-- A scan of the table: an index would have to be changed by every save. The threads with the highest numbers tell which
-- rows cannot be among the newest, so that few rows are sorted.
WITH found AS NOT MATERIALIZED (
    SELECT * FROM thread NOT INDEXED
    WHERE namespace = ?1 AND name IS NOT NULL
      AND (updated_at < ?2 OR (updated_at = ?2 AND (?3 IS NULL OR name > ?3)))
      AND (?5 = x'' OR substr(name, 1, length(?5)) = ?5)
      AND (?6 IS NULL OR (instr(name, ?7)
          AND (CAST(name AS TEXT) LIKE ?6 ESCAPE '\' OR length(CAST(name AS TEXT)) <> length(name)))))
SELECT * FROM found
WHERE updated_at >= (SELECT min(updated_at) FROM (SELECT updated_at FROM found ORDER BY thread_no DESC LIMIT ?4))
ORDER BY updated_at DESC, name LIMIT ?4

-- name: thread_counts
-- The same from the table and from an index. Reads both trees; used only at the end of a listing by number.
SELECT count(*), sum(thread_no & 4294967295) FROM thread NOT INDEXED WHERE namespace = ?1
UNION ALL
SELECT count(*), sum(thread_no & 4294967295) FROM thread INDEXED BY thread_by_name WHERE namespace = ?1

-- name: metadata
-- Checkpoints of all threads, in the order of their keys. The thread of each is found by its number, because a join in
-- the other direction takes longer if threads are short.
SELECT row_key, checkpoint.step, label, checkpoint.head, meta, row_key & 0xffffffff = thread.head
FROM checkpoint NOT INDEXED CROSS JOIN thread NOT INDEXED ON thread_no = row_key >> 32
WHERE row_key > ?2 AND namespace = ?1 AND name IS NOT NULL ORDER BY row_key LIMIT ?3

-- name: checkpoints_by_label
SELECT row_key, step, label, head, meta FROM checkpoint INDEXED BY checkpoint_by_label
WHERE row_key >> 32 = ?1 >> 32 AND label = ?4 AND row_key BETWEEN ?1 AND ?2 ORDER BY row_key DESC LIMIT ?3

-- name: labelled
SELECT row_key FROM checkpoint NOT INDEXED WHERE row_key BETWEEN ?1 AND ?2 AND label = ?3 ORDER BY row_key DESC

-- name: forks_in_index
-- Reads the whole second tree, which has another order. Used only by maintenance and forks.
SELECT thread FROM fork INDEXED BY fork_by_thread WHERE origin = ?1 ORDER BY thread
