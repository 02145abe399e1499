-- Functions for the writes that workers make all the time. The server plans a function once per connection, and a
-- statement for each execution, which takes longer than the write. They are optional: without them, these writes are
-- made in transactions of several statements.
--
-- A function writes only if the rows are as the writer expects. If they are not, it writes nothing, returns no row and
-- raises no error, which would end the transaction of a group. It also writes nothing if another transaction holds a
-- row, so that the group does not wait. Entries to replace are counted first: UPDATE skips a missing one.
--
-- Every row is found by its key. A plan that was made for an empty table must not read all of it later, so none may.

-- name: commit
CREATE OR REPLACE FUNCTION hf.guarded_commit(
    bigint, bigint, bigint, bytea, bigint, bigint, bytea, bytea, bigint, bigint, bigint, bytea, bytea, bigint, bigint,
    bigint, bigint, bigint, bigint, bytea, bytea, bytea, bytea, bytea, bytea)
RETURNS SETOF bigint LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $body$ BEGIN
RETURN QUERY
WITH moved AS (
    UPDATE hf.thread SET head = $2, move = $3, last = $2, head_id = $4, fence = $5, step = $6,
        status = $7, agent = $8, size = $9, updated_at = $10, checksum = $11
    WHERE thread_no = (
        SELECT t.thread_no FROM hf.thread AS t
        WHERE t.thread_no = $1 AND t.namespace = $12 AND t.name = $13 AND t.head = $14 AND t.move = $15 AND t.last = $16
          AND t.fence IS NOT DISTINCT FROM $17 FOR UPDATE SKIP LOCKED)
    RETURNING thread_no)
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
SELECT $18, $19, $20, $21, $22, $23, $24, $25 FROM moved RETURNING row_key;
END $body$

-- name: commit_in_run
-- With journal entries, a new record of the run, or both. Without a new record, $26 to $39 are NULL.
-- A lease that continues on the same clock keeps the later of both ends.
CREATE OR REPLACE FUNCTION hf.guarded_commit_in_run(
    bigint, bigint, bigint, bytea, bigint, bigint, bytea, bytea, bigint, bigint, bigint, bytea, bytea, bigint, bigint,
    bigint, bigint, bigint, bigint, bytea, bytea, bytea, bytea, bytea, bytea, bytea, bigint, bigint, bytea, bigint,
    bigint, bytea, bigint, bigint, bigint, bigint, boolean, bytea, bigint, bigint, bigint, bigint[], bytea[], bytea[],
    bigint[], bytea[], bytea[])
RETURNS SETOF bigint LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $body$ BEGIN
RETURN QUERY
WITH held AS (
    SELECT thread_no FROM hf.run
    WHERE thread_no = (
        SELECT t.thread_no FROM hf.thread AS t
        WHERE t.thread_no = $1 AND t.namespace = $12 AND t.name = $13 AND t.head = $14 AND t.move = $15 AND t.last = $16
          AND t.fence IS NOT DISTINCT FROM $17 FOR UPDATE SKIP LOCKED)
    AND fence = $17 AND status = 'running'::bytea AND entries = coalesce($40, entries)
    AND pg_catalog.cardinality($42) = (SELECT count(*) FROM hf.entry WHERE row_key = ANY($42))
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
    WHERE $26 IS NOT NULL AND thread_no = (SELECT held.thread_no FROM held)),
counted AS (
    UPDATE hf.run SET entries = entries + $41
    WHERE $26 IS NULL AND $41 > 0 AND thread_no = (SELECT held.thread_no FROM held)),
changed AS (
    UPDATE hf.entry SET record = own.record, topic = own.topic
    FROM held, unnest($42, $43, $44) AS own (row_key, record, topic)
    WHERE entry.row_key = own.row_key),
added AS (
    INSERT INTO hf.entry (row_key, record, topic)
    SELECT own.row_key, own.record, own.topic
    FROM held, unnest($45, $46, $47) AS own (row_key, record, topic))
INSERT INTO hf.checkpoint (row_key, step, label, head, meta, refs, skeleton, cells)
SELECT $18, $19, $20, $21, $22, $23, $24, $25 FROM held RETURNING row_key;
END $body$

-- name: journal
CREATE OR REPLACE FUNCTION hf.guarded_journal(
    bigint, bytea, bigint, bigint, bigint, bigint[], bytea[], bytea[], bigint[], bytea[], bytea[])
RETURNS SETOF bigint LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $body$ BEGIN
RETURN QUERY
WITH held AS (
    UPDATE hf.run SET entries = entries + $5
    WHERE thread_no = (
        SELECT r.thread_no FROM hf.run AS r
        WHERE r.thread_no = $1 AND r.namespace = $2 AND r.entries = $4
          AND ($3 IS NULL OR (r.fence = $3 AND r.status = 'running'::bytea))
          AND pg_catalog.cardinality($6) = (SELECT count(*) FROM hf.entry WHERE row_key = ANY($6))
        FOR UPDATE SKIP LOCKED)
    RETURNING thread_no),
changed AS (
    UPDATE hf.entry SET record = own.record, topic = own.topic
    FROM held, unnest($6, $7, $8) AS own (row_key, record, topic)
    WHERE entry.row_key = own.row_key),
added AS (
    INSERT INTO hf.entry (row_key, record, topic)
    SELECT own.row_key, own.record, own.topic
    FROM held, unnest($9, $10, $11) AS own (row_key, record, topic))
SELECT thread_no FROM held;
END $body$

-- name: renew
CREATE OR REPLACE FUNCTION hf.guarded_renew(bigint, bytea, bigint, bigint, bigint)
RETURNS SETOF bigint LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $body$ BEGIN
RETURN QUERY
UPDATE hf.run SET lease_until = $4, lease_checksum = $5
WHERE thread_no = (
    SELECT r.thread_no FROM hf.run AS r
    WHERE r.thread_no = $1 AND r.namespace = $2 AND r.fence = $3 AND r.status = 'running'::bytea AND r.lease_until <= $4
    FOR UPDATE SKIP LOCKED)
RETURNING thread_no;
END $body$
