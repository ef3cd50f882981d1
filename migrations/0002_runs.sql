-- Runs, their journal, and what the journal says about tool calls. Money is in millionths.

CREATE TABLE runs (
    id            TEXT NOT NULL PRIMARY KEY,
    parent_id     TEXT,
    door          TEXT NOT NULL CHECK (door IN ('reactive', 'proactive', 'console', 'child')),
    agent         TEXT NOT NULL,
    thread_id     INTEGER REFERENCES threads (id),
    letter_id     INTEGER REFERENCES letters (id),
    firing_id     INTEGER,
    status        TEXT NOT NULL
        CHECK (status IN ('queued', 'running', 'needs_input', 'done', 'failed', 'cancelled', 'expired')),
    outcome       TEXT,
    model         TEXT NOT NULL,
    rounds        INTEGER NOT NULL DEFAULT 0,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cost          INTEGER NOT NULL DEFAULT 0,
    started_at    TEXT NOT NULL,
    ended_at      TEXT,
    error         TEXT,
    epoch         INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    attempt_seq   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The law that a thread has one run at a time (security R18) stands in the schema itself.
CREATE UNIQUE INDEX runs_one_per_thread ON runs (thread_id) WHERE status = 'running';
CREATE INDEX runs_running ON runs (started_at, id) WHERE status = 'running';
CREATE INDEX runs_by_agent ON runs (agent, started_at);
CREATE INDEX runs_by_start ON runs (started_at, id);
CREATE INDEX runs_by_letter ON runs (letter_id);

CREATE TABLE steps (
    run_id TEXT    NOT NULL REFERENCES runs (id),
    seq    INTEGER NOT NULL,
    at     TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    step   TEXT    NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT;

CREATE TABLE tool_calls (
    run_id     TEXT    NOT NULL REFERENCES runs (id),
    round      INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    arguments  TEXT    NOT NULL,
    result     TEXT,
    status     TEXT    NOT NULL
        CHECK (status IN ('completed', 'failed', 'refused', 'skipped', 'held', 'unknown')),
    started_at TEXT    NOT NULL,
    ended_at   TEXT,
    PRIMARY KEY (run_id, round, position)
) STRICT;

CREATE TABLE results (
    run_id TEXT NOT NULL REFERENCES runs (id),
    id     TEXT NOT NULL,
    text   TEXT NOT NULL,
    PRIMARY KEY (run_id, id)
) STRICT;
