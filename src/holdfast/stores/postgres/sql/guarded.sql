-- Calls of the functions in functions.sql: one statement in one round trip, which returns a row if it has written.

-- name: commit
SELECT hf.guarded_commit(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)

-- name: commit_in_run
SELECT hf.guarded_commit_in_run(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
    $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42::bigint[], $43::bytea[],
    $44::bytea[], $45::bigint[], $46::bytea[], $47::bytea[])

-- name: journal
SELECT hf.guarded_journal(
    $1, $2, $3, $4, $5, $6::bigint[], $7::bytea[], $8::bytea[], $9::bigint[], $10::bytea[], $11::bytea[])

-- name: renew
SELECT hf.guarded_renew($1, $2, $3, $4, $5)
