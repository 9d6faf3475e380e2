-- Every table begins with the workspace: `ws` leads each primary, unique and foreign key, so that a cluster can keep
-- all rows of a workspace on one machine. `workspace` and `migration` are small and the same everywhere.

CREATE TABLE workspace (
    ws      bigint PRIMARY KEY,
    name    text COLLATE "C" NOT NULL UNIQUE,
    created timestamptz NOT NULL DEFAULT now()
);

-- Numbers that only grow, one row for each kind: change notices, passages, fencing numbers.
CREATE TABLE counter (
    ws    bigint NOT NULL,
    name  text COLLATE "C" NOT NULL,
    value bigint NOT NULL,
    PRIMARY KEY (ws, name)
);

-- Rows that units of work lock: `files`, `index`, and one for each transcript.
CREATE TABLE lock (
    ws   bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (ws, name)
);

-- Work that one process does at a time. A lease that is not renewed ends at `expires`; `fence` grows with each holder.
-- Shared leases have several rows.
CREATE TABLE lease (
    ws      bigint NOT NULL,
    name    text COLLATE "C" NOT NULL,
    holder  text COLLATE "C" NOT NULL,
    shared  boolean NOT NULL,
    fence   bigint NOT NULL,
    expires timestamptz NOT NULL,
    PRIMARY KEY (ws, name, holder)
);

-- The current files. The bytes of a file are the parts of its version, in the order of `start`.
CREATE TABLE file (
    ws       bigint NOT NULL,
    path     text COLLATE "C" NOT NULL,
    version  bigint NOT NULL,
    size     bigint NOT NULL,
    mtime_ns bigint NOT NULL,
    sealed   boolean NOT NULL,
    PRIMARY KEY (ws, path)
);

-- Earlier versions of documents stay; of transcripts, logs and `.local/` only the current one is kept. `size` is NULL
-- for a deletion.
CREATE TABLE file_version (
    ws      bigint NOT NULL,
    path    text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    at      timestamptz NOT NULL,
    size    bigint,
    PRIMARY KEY (ws, path, version)
);

CREATE TABLE file_part (
    ws      bigint NOT NULL,
    path    text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    start   bigint NOT NULL,
    data    bytea NOT NULL,
    PRIMARY KEY (ws, path, version, start),
    FOREIGN KEY (ws, path, version) REFERENCES file_version (ws, path, version) ON DELETE CASCADE
);

-- Files that changed since they were indexed. `changes` tells whether a file changed again meanwhile.
CREATE TABLE unindexed (
    ws      bigint NOT NULL,
    path    text COLLATE "C" NOT NULL,
    changes bigint NOT NULL,
    PRIMARY KEY (ws, path)
);

-- Change notices, in the order in which they were committed. Old ones are deleted.
CREATE TABLE change (
    ws      bigint NOT NULL,
    seq     bigint NOT NULL,
    sender  text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    path    text COLLATE "C",
    session text COLLATE "C",
    at      timestamptz NOT NULL,
    PRIMARY KEY (ws, seq)
);

-- The state: sessions, source keys of turns, references, ids of folders, small values, and live sets.
CREATE TABLE session (
    ws           bigint NOT NULL,
    session      text COLLATE "C" NOT NULL,
    path         text COLLATE "C" NOT NULL,
    status       text COLLATE "C" NOT NULL,
    project      text COLLATE "C" NOT NULL,
    kind         text COLLATE "C",
    delivery     text COLLATE "C",
    title        text COLLATE "C" NOT NULL,
    opened       text COLLATE "C" NOT NULL,
    last_arrival text COLLATE "C" NOT NULL,
    turns        bigint NOT NULL,
    last_at      text COLLATE "C",
    size         bigint NOT NULL,
    PRIMARY KEY (ws, session)
);

CREATE TABLE turn_key (
    ws      bigint NOT NULL,
    session text COLLATE "C" NOT NULL,
    number  bigint NOT NULL,
    role    text COLLATE "C" NOT NULL,
    sha     text COLLATE "C" NOT NULL,
    nth     bigint NOT NULL,
    turn_id text COLLATE "C",
    PRIMARY KEY (ws, session, number)
);
CREATE INDEX turn_key_id ON turn_key (ws, turn_id, session) WHERE turn_id IS NOT NULL;
CREATE INDEX turn_key_sha ON turn_key (ws, session, sha);

CREATE TABLE access (
    ws   bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    at   text COLLATE "C" NOT NULL,
    id   bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    PRIMARY KEY (ws, path, at, id)
);

CREATE TABLE directory (
    ws     bigint NOT NULL,
    folder text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    PRIMARY KEY (ws, folder)
);

-- Values are JSON as text, because `jsonb` refuses the character U+0000.
CREATE TABLE entry (
    ws        bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    value     text COLLATE "C" NOT NULL,
    PRIMARY KEY (ws, namespace, key)
);

CREATE TABLE live_chunk (
    ws        bigint NOT NULL,
    session   text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    turn      bigint NOT NULL,
    part      bigint NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    tokens    bigint NOT NULL,
    added     text COLLATE "C" NOT NULL,
    form      text COLLATE "C" NOT NULL,
    shown     text COLLATE "C",
    one_line  bigint,
    name      text COLLATE "C" NOT NULL,
    important bigint NOT NULL,
    system    bigint NOT NULL,
    immune    bigint NOT NULL,
    accesses  bigint NOT NULL,
    accessed  text COLLATE "C",
    tags      text COLLATE "C" NOT NULL,
    topics    text COLLATE "C" NOT NULL,
    mtime     text COLLATE "C",
    PRIMARY KEY (ws, session, id)
);
CREATE INDEX live_chunk_id ON live_chunk (ws, id);

-- The search index. `kind` is 0 for what people said and wrote, 1 for lines that an extractor derived from turns: they
-- have postings and counts of their own, so that a search ranks the rest as if there were no such lines.
CREATE TABLE indexed_file (
    ws        bigint NOT NULL,
    path      text COLLATE "C" NOT NULL,
    size      bigint NOT NULL,
    mtime_ns  bigint NOT NULL,
    looked_ns bigint NOT NULL,
    sha256    bytea NOT NULL,
    so_far    text COLLATE "C",
    problem   text COLLATE "C",
    PRIMARY KEY (ws, path)
);

CREATE TABLE passage (
    ws                 bigint NOT NULL,
    id                 bigint NOT NULL,
    path               text COLLATE "C" NOT NULL,
    mark               bigint NOT NULL,
    part               bigint NOT NULL,
    kind               smallint NOT NULL,
    project            text COLLATE "C" NOT NULL,
    session            text COLLATE "C" NOT NULL,
    category           text COLLATE "C" NOT NULL,
    speaker            text COLLATE "C" NOT NULL,
    at                 double precision,
    file_at            double precision NOT NULL,
    words              bigint NOT NULL,
    digest             bytea NOT NULL,
    ordinal            bigint NOT NULL,
    first_line         bigint NOT NULL,
    last_line          bigint NOT NULL,
    text               text COLLATE "C" NOT NULL,
    title              text COLLATE "C" NOT NULL,
    turn               bigint,
    turn_id            text COLLATE "C",
    role               text COLLATE "C" NOT NULL,
    chars              bigint NOT NULL,
    tells_time         boolean NOT NULL,
    first_person       bigint NOT NULL,
    ends_with_question boolean NOT NULL,
    stems              bytea NOT NULL,
    vector             bytea,
    PRIMARY KEY (ws, id),
    UNIQUE (ws, path, mark, part)
);
CREATE INDEX passage_session ON passage (ws, session);
CREATE INDEX passage_without_vector ON passage (ws, id) WHERE vector IS NULL;

-- Narrow, because an exact scan reads all rows of a workspace. The numbers are whole: a vector times 254, rounded.
CREATE TABLE passage_vector (
    ws     bigint NOT NULL,
    id     bigint NOT NULL,
    kind   smallint NOT NULL,
    vector halfvec NOT NULL,
    PRIMARY KEY (ws, id),
    FOREIGN KEY (ws, id) REFERENCES passage (ws, id) ON DELETE CASCADE
);

-- Postings: the passages of each stem with term frequency and length. A block has at most 256, as little-endian int64
-- (ids) and int32 (the others); new ones are rows of `posting_delta` until they are merged.
CREATE TABLE posting_block (
    ws    bigint NOT NULL,
    kind  smallint NOT NULL,
    stem  bigint NOT NULL,
    first bigint NOT NULL,
    n     integer NOT NULL,
    ids   bytea NOT NULL,
    tfs   bytea NOT NULL,
    lens  bytea NOT NULL,
    PRIMARY KEY (ws, kind, stem, first)
);

CREATE TABLE posting_delta (
    ws      bigint NOT NULL,
    kind    smallint NOT NULL,
    stem    bigint NOT NULL,
    passage bigint NOT NULL,
    tf      integer NOT NULL,
    len     integer NOT NULL,
    PRIMARY KEY (ws, kind, stem, passage)
);

-- Deleted passages that blocks still name, with their stems, until their blocks are merged.
CREATE TABLE posting_gone (
    ws      bigint NOT NULL,
    kind    smallint NOT NULL,
    passage bigint NOT NULL,
    stems   bytea NOT NULL,
    PRIMARY KEY (ws, kind, passage)
);

-- The number of passages that contain each stem.
CREATE TABLE term (
    ws   bigint NOT NULL,
    kind smallint NOT NULL,
    stem bigint NOT NULL,
    df   bigint NOT NULL,
    PRIMARY KEY (ws, kind, stem)
);

CREATE TABLE totals (
    ws       bigint NOT NULL,
    kind     smallint NOT NULL,
    passages bigint NOT NULL,
    words    bigint NOT NULL,
    PRIMARY KEY (ws, kind)
);

CREATE TABLE speaker (
    ws       bigint NOT NULL,
    project  text COLLATE "C" NOT NULL,
    speaker  text COLLATE "C" NOT NULL,
    kind     smallint NOT NULL,
    passages bigint NOT NULL,
    PRIMARY KEY (ws, project, speaker, kind)
);

-- The embedder of the vectors, as text by key.
CREATE TABLE index_state (
    ws    bigint NOT NULL,
    key   text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (ws, key)
);
