-- Each is one statement in one round trip. It writes only if the rows are as the writer expects. If they are not, it
-- writes nothing and raises no error, which would end the transaction of a group. It also writes nothing if another
-- transaction holds a row, so that the group does not wait. No joins and no extra columns: without prepared statements,
-- each execution is planned again. Entries to replace are counted first: UPDATE skips a missing one.

-- name: commit
WITH moved AS (
    UPDATE hf.thread SET head = $2, move = $3, last = $2, head_id = $4, fence = $5, step = $6,
        status = $7, agent = $8, size = $9, updated_at = $10, checksum = $11
    WHERE thread_no = (
        SELECT t.thread_no FROM hf.thread AS t
        WHERE t.thread_no = $1 AND t.namespace = $12 AND t.name = $13 AND t.head = $14 AND t.move = $15 AND t.last = $16
          AND t.fence IS NOT DISTINCT FROM $17 FOR UPDATE SKIP LOCKED)
    RETURNING thread_no)
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
SELECT $18, $19, $20::bytea, $21, $22, $23, $24, $25::bytea FROM moved

-- name: commit_with_run
-- A lease that continues on the same clock keeps the later of both ends.
WITH held AS (
    SELECT thread_no FROM hf.run
    WHERE thread_no = (
        SELECT t.thread_no FROM hf.thread AS t
        WHERE t.thread_no = $1 AND t.namespace = $12 AND t.name = $13 AND t.head = $14 AND t.move = $15 AND t.last = $16
          AND t.fence IS NOT DISTINCT FROM $17 FOR UPDATE SKIP LOCKED)
    AND fence = $17 AND status = 'running'::bytea AND entries = coalesce($40, entries)
    AND cardinality($42::bigint[]) = (SELECT count(*) FROM hf.entry WHERE row_key = ANY($42::bigint[]))
    FOR UPDATE SKIP LOCKED),
moved AS (
    UPDATE hf.thread SET head = $2, move = $3, last = $2, head_id = $4, fence = $5, step = $6,
        status = $7, agent = $8, size = $9, updated_at = $10, checksum = $11
    WHERE thread_no = (SELECT held.thread_no FROM held)),
ran AS (
    UPDATE hf.run SET status = $26, fence = $27, updated_at = $28, clock = $29, wake_at = $30, wake_wall = $31,
        handler = $32, rank = $33, ready = $34,
        lease_until = CASE WHEN $37 AND clock = $29 AND lease_until > $35 THEN lease_until ELSE $35 END,
        lease_checksum = CASE WHEN $37 AND clock = $29 AND lease_until > $35 THEN lease_checksum ELSE $36 END,
        entries = entries + $41, record = $38, checksum = $39
    WHERE thread_no = (SELECT held.thread_no FROM held)),
changed AS (
    UPDATE hf.entry SET record = own.record, topic = own.topic
    FROM held, unnest($42::bigint[], $43::bytea[], $44::bytea[]) AS own (row_key, record, topic)
    WHERE entry.row_key = own.row_key),
added AS (
    INSERT INTO hf.entry (row_key, record, topic)
    SELECT own.row_key, own.record, own.topic
    FROM held, unnest($45::bigint[], $46::bytea[], $47::bytea[]) AS own (row_key, record, topic))
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
SELECT $18, $19, $20::bytea, $21, $22, $23, $24, $25::bytea FROM held

-- name: journal
WITH held AS (
    UPDATE hf.run SET entries = entries + $5
    WHERE thread_no = (
        SELECT r.thread_no FROM hf.run AS r
        WHERE r.thread_no = $1 AND r.namespace = $2 AND r.fence = $3 AND r.status = 'running'::bytea AND r.entries = $4
          AND cardinality($6::bigint[]) = (SELECT count(*) FROM hf.entry WHERE row_key = ANY($6::bigint[]))
        FOR UPDATE SKIP LOCKED)
    RETURNING thread_no),
changed AS (
    UPDATE hf.entry SET record = own.record, topic = own.topic
    FROM held, unnest($6::bigint[], $7::bytea[], $8::bytea[]) AS own (row_key, record, topic)
    WHERE entry.row_key = own.row_key),
added AS (
    INSERT INTO hf.entry (row_key, record, topic)
    SELECT own.row_key, own.record, own.topic
    FROM held, unnest($9::bigint[], $10::bytea[], $11::bytea[]) AS own (row_key, record, topic))
SELECT thread_no FROM held

-- name: renew
UPDATE hf.run SET lease_until = $4, lease_checksum = $5
WHERE thread_no = (
    SELECT r.thread_no FROM hf.run AS r
    WHERE r.thread_no = $1 AND r.namespace = $2 AND r.fence = $3 AND r.status = 'running'::bytea AND r.lease_until <= $4
    FOR UPDATE SKIP LOCKED)
