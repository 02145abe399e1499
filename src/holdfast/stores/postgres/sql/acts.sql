-- name: act
SELECT key, thread_no, number, checksum FROM hf.act WHERE namespace = $1 AND key = $2

-- name: lock_act
SELECT key, thread_no, number, checksum FROM hf.act WHERE namespace = $1 AND key = $2 FOR UPDATE

-- name: acts
SELECT key, thread_no, number, checksum FROM hf.act
WHERE namespace = $1 AND key > $2 AND key < $3 ORDER BY key LIMIT $4

-- name: insert_act
INSERT INTO hf.act (namespace, key, thread_no, number, checksum) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (namespace, key) DO NOTHING

-- name: replace_act
UPDATE hf.act SET thread_no = $3, number = $4, checksum = $5 WHERE namespace = $1 AND key = $2

-- name: delete_act
DELETE FROM hf.act WHERE namespace = $1 AND key = $2
