-- One statement, one round trip, no transaction to end: what is written depends on the versions that the writer knows.
-- Where they are not those that are stored, nothing is written, and no error ends the transaction of a group. Nor is
-- anything written where somebody else holds a row: those who share the transaction do not wait for him.

-- name: quick_commit
WITH known AS (
    SELECT thread_no FROM hf.thread WHERE thread_no = $1 AND version = $14 AND checksum = $15 FOR UPDATE SKIP LOCKED),
moved AS (
    UPDATE hf.thread SET head = $2, move = $3, last = $4, count = $5, head_id = $6, step = $7, status = $8, agent = $9,
        size = $10, updated_at = $11, checksum = $12, version = $13
    FROM known WHERE thread.thread_no = known.thread_no
    RETURNING thread.thread_no)
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
SELECT $16::bigint, $17::bigint, $18::bytea, $19::bytea, $20::bytea, $21::bytea, $22::bytea, $23::bytea FROM moved
RETURNING row_key

-- name: quick_commit_of_run
WITH known AS (
    SELECT thread_no FROM hf.thread WHERE thread_no = $1 AND version = $14 AND checksum = $15 FOR UPDATE SKIP LOCKED),
held AS (
    SELECT run.thread_no FROM known JOIN hf.run ON run.thread_no = known.thread_no
    WHERE run.version = $33 AND run.checksum = $34 FOR UPDATE OF run SKIP LOCKED),
moved AS (
    UPDATE hf.thread SET head = $2, move = $3, last = $4, count = $5, head_id = $6, step = $7, status = $8, agent = $9,
        size = $10, updated_at = $11, checksum = $12, version = $13
    FROM held WHERE thread.thread_no = held.thread_no),
ran AS (
    UPDATE hf.run SET status = $24, updated_at = $25, wake_clock = $26, wake_at = $27, wake_wall = $28, entries = $29,
        record = $30, checksum = $31, version = $32
    FROM held WHERE run.thread_no = held.thread_no),
changed AS (
    UPDATE hf.effect SET record = entry.record, mark = entry.mark
    FROM held, unnest($35::bigint[], $36::bytea[], $37::bytea[]) AS entry (row_key, record, mark)
    WHERE effect.row_key = entry.row_key),
added AS (
    INSERT INTO hf.effect (row_key, record, mark)
    SELECT entry.row_key, entry.record, entry.mark
    FROM held, unnest($38::bigint[], $39::bytea[], $40::bytea[]) AS entry (row_key, record, mark))
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
SELECT $16::bigint, $17::bigint, $18::bytea, $19::bytea, $20::bytea, $21::bytea, $22::bytea, $23::bytea FROM held
RETURNING row_key

-- name: quick_journal
WITH known AS (
    SELECT thread_no FROM hf.run WHERE thread_no = $1 AND version = $5 AND checksum = $6 FOR UPDATE SKIP LOCKED),
held AS (
    UPDATE hf.run SET entries = $2, checksum = $3, version = $4
    FROM known WHERE run.thread_no = known.thread_no
    RETURNING run.thread_no),
changed AS (
    UPDATE hf.effect SET record = entry.record, mark = entry.mark
    FROM held, unnest($7::bigint[], $8::bytea[], $9::bytea[]) AS entry (row_key, record, mark)
    WHERE effect.row_key = entry.row_key),
added AS (
    INSERT INTO hf.effect (row_key, record, mark)
    SELECT entry.row_key, entry.record, entry.mark
    FROM held, unnest($10::bigint[], $11::bytea[], $12::bytea[]) AS entry (row_key, record, mark))
SELECT thread_no FROM held
