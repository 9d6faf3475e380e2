-- The version of the file that was indexed. While it is the current one, a transcript has only been appended to, and
-- only the new part is read.
ALTER TABLE indexed_file ADD COLUMN version bigint;
