-- Optional settings that a database may reject; each is tried separately. These bytes are already compressed:
-- compressing them again would cost time, and reading a part would unpack the whole.
ALTER TABLE hf.checkpoint ALTER COLUMN skeleton SET STORAGE EXTERNAL;
ALTER TABLE hf.checkpoint ALTER COLUMN cells SET STORAGE EXTERNAL;
ALTER TABLE hf.segment ALTER COLUMN cells SET STORAGE EXTERNAL;
ALTER TABLE hf.piece ALTER COLUMN data SET STORAGE EXTERNAL;
