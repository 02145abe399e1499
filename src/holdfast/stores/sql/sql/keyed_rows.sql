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

-- name: key
SELECT id, name, wrapped FROM hf.data_key WHERE namespace = $1 AND id = $2

-- name: lock_key
SELECT id, name, wrapped FROM hf.data_key WHERE namespace = $1 AND id = $2 FOR UPDATE

-- name: keys
SELECT id, name, wrapped FROM hf.data_key WHERE namespace = $1 AND id > $2 ORDER BY id LIMIT $3

-- name: insert_key
INSERT INTO hf.data_key (namespace, id, name, wrapped, thread_no) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (namespace, id) DO NOTHING

-- name: replace_key
UPDATE hf.data_key SET name = $3, wrapped = $4 WHERE namespace = $1 AND id = $2

-- name: delete_key
DELETE FROM hf.data_key WHERE namespace = $1 AND id = $2

-- name: delete_key_of_thread
DELETE FROM hf.data_key WHERE thread_no = $1
