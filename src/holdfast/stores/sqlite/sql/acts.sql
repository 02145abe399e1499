-- name: act
SELECT key, thread_no, number, checksum FROM act WHERE namespace = ?1 AND key = ?2

-- name: lock_act
SELECT key, thread_no, number, checksum FROM act WHERE namespace = ?1 AND key = ?2

-- name: acts
SELECT key, thread_no, number, checksum FROM act
WHERE namespace = ?1 AND key > ?2 AND key < ?3 ORDER BY key LIMIT ?4

-- name: insert_act
INSERT INTO act (namespace, key, thread_no, number, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (namespace, key) DO NOTHING

-- name: replace_act
UPDATE act SET thread_no = ?3, number = ?4, checksum = ?5 WHERE namespace = ?1 AND key = ?2

-- name: delete_act
DELETE FROM act WHERE namespace = ?1 AND key = ?2
