-- name: names_in_index
SELECT thread_no, namespace, name FROM thread INDEXED BY thread_by_name WHERE namespace >= x'' AND name IS NOT NULL

-- name: digests_in_index
SELECT thread_no, name_digest FROM thread INDEXED BY thread_by_digest WHERE name_digest IS NOT NULL

-- name: spaces_of_blobs
SELECT DISTINCT namespace FROM blob NOT INDEXED

-- name: spaces_of_keys
SELECT DISTINCT namespace FROM data_key NOT INDEXED

-- name: runs
SELECT * FROM run NOT INDEXED

-- name: threads
SELECT * FROM thread NOT INDEXED

-- name: thread
SELECT * FROM thread WHERE thread_no = ?1

-- name: origins_without_record
SELECT origin, max(segment.row_key) FROM fork
JOIN thread ON thread.thread_no = fork.thread JOIN segment ON segment.row_key BETWEEN origin << 32 AND origin << 32 | 0xffffffff
WHERE namespace = ?1 AND origin NOT IN (SELECT thread_no FROM thread NOT INDEXED) GROUP BY origin

-- name: forget_table
DELETE FROM sqlite_schema WHERE tbl_name = 'thread'

-- name: numbers_of_checkpoints
SELECT DISTINCT row_key >> 32 FROM checkpoint NOT INDEXED

-- name: checkpoints
SELECT row_key, step, label, head, meta FROM checkpoint
WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key

-- name: moves
SELECT row_key, head FROM move WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff

-- name: put_thread
INSERT OR REPLACE INTO thread VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
