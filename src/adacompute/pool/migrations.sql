-- The tables that each migration creates. Never edit a released migration: add another below.

-- 0001_first_tables
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL, hash BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE problems (
    key INTEGER PRIMARY KEY,  -- in the order in which the problems were added
    id TEXT NOT NULL UNIQUE,
    question TEXT NOT NULL,
    gold TEXT,
    subject TEXT,
    level,  -- a number or text, as given
    extra TEXT,  -- keys that the package doesn't know, as canonical JSON
    hash BLOB NOT NULL
);
CREATE TABLE sources (
    key INTEGER PRIMARY KEY,
    model TEXT,
    parameters TEXT NOT NULL,  -- JSON
    fingerprint TEXT NOT NULL
);
-- model IS NULL and coalesce, because UNIQUE allows several rows with NULL
CREATE UNIQUE INDEX one_source ON sources (model IS NULL, coalesce(model, ''), fingerprint);
CREATE TABLE records (
    key INTEGER PRIMARY KEY,
    problem INTEGER NOT NULL REFERENCES problems (key),
    source INTEGER NOT NULL REFERENCES sources (key),
    spelling TEXT,  -- keys that were given but empty or null, as canonical JSON
    hash BLOB NOT NULL,
    UNIQUE (problem, source)
);
CREATE TABLE samples (
    record INTEGER NOT NULL REFERENCES records (key),
    idx INTEGER NOT NULL CHECK (idx >= 0),
    text TEXT,
    answer TEXT,  -- NULL if the sample has no answer
    class INTEGER NOT NULL CHECK (class >= 0 OR (class = -1 AND answer IS NULL)),
    correct REAL CHECK (correct BETWEEN 0 AND 1),
    tokens INTEGER CHECK (tokens >= 0),
    logprob REAL,
    entropy REAL,
    finished INTEGER CHECK (finished IN (0, 1)),
    extra TEXT,
    hash BLOB NOT NULL,
    PRIMARY KEY (record, idx)
);
CREATE TABLE failures (
    key INTEGER PRIMARY KEY,
    record INTEGER NOT NULL REFERENCES records (key),
    idx INTEGER NOT NULL CHECK (idx >= 0),
    kind TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    message TEXT,
    at REAL,
    hash BLOB NOT NULL
);
CREATE INDEX failures_of ON failures (record);

-- 0002_calls
CREATE TABLE calls (
    key INTEGER PRIMARY KEY,
    source INTEGER NOT NULL REFERENCES sources (key),
    at REAL NOT NULL,  -- seconds since 1970, UTC
    seconds REAL NOT NULL,
    asked INTEGER NOT NULL,
    got INTEGER NOT NULL,
    surplus INTEGER NOT NULL,
    kind TEXT NOT NULL,  -- 'ok', or the kind of error
    status INTEGER,  -- HTTP status
    paid TEXT NOT NULL CHECK (paid IN ('yes', 'no', 'maybe')),
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    estimated INTEGER NOT NULL CHECK (estimated IN (0, 1)),
    hash BLOB NOT NULL
);
CREATE INDEX calls_of ON calls (source);
