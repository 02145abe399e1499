-- name: reindex_thread_by_name
REINDEX thread_by_name

-- name: reindex_thread_by_hash
REINDEX thread_by_hash

-- name: reindex_checkpoint_by_label
REINDEX checkpoint_by_label

-- name: reindex_fork_by_thread
REINDEX fork_by_thread

-- name: reindex_run_open
REINDEX run_open

-- name: reindex_run_waking
REINDEX run_waking

-- name: reindex_run_waking_by_wall
REINDEX run_waking_by_wall

-- name: reindex_effect_marked
REINDEX effect_marked

-- name: reindex_value_by_digest
REINDEX value_by_digest

-- name: threads
SELECT * FROM thread NOT INDEXED

-- name: numbers_of_checkpoints
SELECT DISTINCT row_key >> 32 FROM checkpoint NOT INDEXED

-- name: checkpoints
SELECT row_key, step, label, head, meta FROM checkpoint
WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff ORDER BY row_key

-- name: moves
SELECT row_key, head FROM move WHERE row_key BETWEEN ?1 << 32 AND ?1 << 32 | 0xffffffff

-- name: put_thread
INSERT OR REPLACE INTO thread VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
