-- Who may use a workspace. `principal`, `membership` and `secret` are small and the same everywhere, as `workspace` is.

-- A person or a program that an issuer of tokens knows. `id` is a hash of issuer and subject; `personal` is the workspace
-- that is made at the first sign-in.
CREATE TABLE principal (
    id       text COLLATE "C" PRIMARY KEY,
    issuer   text COLLATE "C" NOT NULL,
    subject  text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    personal bigint,
    created  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE membership (
    ws        bigint NOT NULL,
    principal text COLLATE "C" NOT NULL,
    role      text COLLATE "C" NOT NULL,
    PRIMARY KEY (ws, principal)
);
CREATE INDEX membership_principal ON membership (principal);

-- Keys that all replicas share.
CREATE TABLE secret (
    name  text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

-- Who read and wrote what, without content: names of tools, paths, sessions.
CREATE TABLE audit (
    ws        bigint NOT NULL,
    at        timestamptz NOT NULL,
    id        text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    client    text COLLATE "C" NOT NULL,
    action    text COLLATE "C" NOT NULL,
    targets   text[] COLLATE "C" NOT NULL,
    outcome   text COLLATE "C" NOT NULL,
    PRIMARY KEY (ws, at, id)
);
