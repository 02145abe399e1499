-- What a database may refuse without harm: each is tried by itself.
-- These bytes are compressed already; trying again would only cost time, and reading a part would unpack the whole.
ALTER TABLE hf.checkpoint ALTER COLUMN skeleton SET STORAGE EXTERNAL;
ALTER TABLE hf.checkpoint ALTER COLUMN cells SET STORAGE EXTERNAL;
ALTER TABLE hf.segment ALTER COLUMN cells SET STORAGE EXTERNAL;
ALTER TABLE hf.value_piece ALTER COLUMN data SET STORAGE EXTERNAL;
