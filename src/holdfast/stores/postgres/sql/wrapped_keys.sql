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
