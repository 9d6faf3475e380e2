-- For searches by meaning within a small project: without it they compare the vectors of all projects. Building it takes
-- two seconds for a million passages; turns are recorded meanwhile, and indexed afterwards.
CREATE INDEX passage_project ON passage (ws, project, session, id);
