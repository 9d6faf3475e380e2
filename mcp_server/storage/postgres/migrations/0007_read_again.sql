-- The network that reads what passages are about was fitted anew: they are read again in the background. The column is
-- there again at once, so programs that know it can go on.
-- needs 6

ALTER TABLE passage DROP COLUMN about;
ALTER TABLE passage ADD COLUMN about bytea;
CREATE INDEX passage_not_read ON passage (ws, id) WHERE about IS NULL;
