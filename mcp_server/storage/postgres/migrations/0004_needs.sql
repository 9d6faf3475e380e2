-- The number of the newest migration that a program must know to work with the tables after this one; 0 for all programs.
ALTER TABLE migration ADD COLUMN IF NOT EXISTS needs integer NOT NULL DEFAULT 0;
