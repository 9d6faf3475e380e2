-- What a passage is about, as the recognizer's network reads it: int8; NULL: not read yet, empty: in another language.

ALTER TABLE passage ADD COLUMN about bytea;
CREATE INDEX passage_not_read ON passage (ws, id) WHERE about IS NULL;
