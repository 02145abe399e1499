-- Each is one statement in one round trip. It writes only if the row versions are those that the writer knows. If they
-- are not, it writes nothing and raises no error, which would end the transaction of a group. It also writes nothing if
-- another transaction holds a row, so that the group does not wait. No joins and no extra columns: without prepared
-- statements, each execution is planned again.

-- name: quick_commit
WITH moved AS (
    UPDATE hf.thread SET head = $2, move = $3, last = $4, count = $5, head_id = $6, step = $7, status = $8, agent = $9,
        size = $10, updated_at = $11, checksum = $12, version = $13
    WHERE thread_no = (
        SELECT known.thread_no FROM hf.thread AS known
        WHERE known.thread_no = $1 AND known.version = $14 AND known.checksum = $15 FOR UPDATE SKIP LOCKED)
    RETURNING thread_no)
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
SELECT $16, $17, $18::bytea, $19, $20, $21, $22, $23::bytea FROM moved

-- name: quick_commit_of_run
WITH held AS (
    SELECT thread_no FROM hf.run
    WHERE thread_no = (
        SELECT known.thread_no FROM hf.thread AS known
        WHERE known.thread_no = $1 AND known.version = $14 AND known.checksum = $15 FOR UPDATE SKIP LOCKED)
    AND version = $33 AND checksum = $34 FOR UPDATE SKIP LOCKED),
moved AS (
    UPDATE hf.thread SET head = $2, move = $3, last = $4, count = $5, head_id = $6, step = $7, status = $8, agent = $9,
        size = $10, updated_at = $11, checksum = $12, version = $13
    WHERE thread_no = (SELECT held.thread_no FROM held)),
ran AS (
    UPDATE hf.run SET status = $24, updated_at = $25, wake_clock = $26, wake_at = $27, wake_wall = $28, entries = $29,
        record = $30, checksum = $31, version = $32
    WHERE thread_no = (SELECT held.thread_no FROM held)),
changed AS (
    UPDATE hf.effect SET record = entry.record, mark = entry.mark
    FROM held, unnest($35::bigint[], $36::bytea[], $37::bytea[]) AS entry (row_key, record, mark)
    WHERE effect.row_key = entry.row_key),
added AS (
    INSERT INTO hf.effect (row_key, record, mark)
    SELECT entry.row_key, entry.record, entry.mark
    FROM held, unnest($38::bigint[], $39::bytea[], $40::bytea[]) AS entry (row_key, record, mark))
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
SELECT $16, $17, $18::bytea, $19, $20, $21, $22, $23::bytea FROM held

-- name: quick_journal
WITH held AS (
    UPDATE hf.run SET entries = $2, checksum = $3, version = $4
    WHERE thread_no = (
        SELECT known.thread_no FROM hf.run AS known
        WHERE known.thread_no = $1 AND known.version = $5 AND known.checksum = $6 FOR UPDATE SKIP LOCKED)
    RETURNING thread_no),
changed AS (
    UPDATE hf.effect SET record = entry.record, mark = entry.mark
    FROM held, unnest($7::bigint[], $8::bytea[], $9::bytea[]) AS entry (row_key, record, mark)
    WHERE effect.row_key = entry.row_key),
added AS (
    INSERT INTO hf.effect (row_key, record, mark)
    SELECT entry.row_key, entry.record, entry.mark
    FROM held, unnest($10::bigint[], $11::bytea[], $12::bytea[]) AS entry (row_key, record, mark))
SELECT thread_no FROM held
