-- What an operator may rely on: names, columns and words are a contract.

CREATE TABLE firings (
    id         INTEGER PRIMARY KEY,
    duty       TEXT NOT NULL,
    due_at     TEXT NOT NULL,
    claimed_at TEXT,
    run_id     TEXT,
    status     TEXT NOT NULL
        CHECK (status IN ('queued', 'running', 'done', 'failed', 'missed', 'skipped', 'quiet', 'cancelled')),
    reason     TEXT,
    UNIQUE (duty, due_at)
) STRICT;

CREATE TABLE questions (
    id          INTEGER PRIMARY KEY,
    run_id      TEXT,
    kind        TEXT NOT NULL CHECK (kind IN ('question', 'approval')),
    asked_of    TEXT NOT NULL COLLATE NOCASE,
    questions   TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('open', 'answered', 'expired', 'cancelled', 'undeliverable')),
    asked_at    TEXT NOT NULL,
    expires_at  TEXT NOT NULL,
    answer      TEXT,
    answered_by TEXT,
    answered_at TEXT
) STRICT;

CREATE TABLE events (
    seq    INTEGER PRIMARY KEY,
    at     TEXT NOT NULL,
    run_id TEXT,
    kind   TEXT NOT NULL,
    data   TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_run ON events (run_id, seq);

CREATE VIEW audit_letters (id, mailbox, agent, message_id, sender, identity, subject, received_at, verdict, reason, thread_id, run_id) AS
SELECT id, mailbox, agent, message_id, sender, identity, subject, received_at, verdict, reason, thread_id, run_id
FROM letters;

CREATE VIEW audit_runs (id, parent_id, door, agent, thread_id, letter_id, firing_id, status, outcome, model, rounds, input_tokens,
    output_tokens, cost, started_at, ended_at, error) AS
SELECT id, parent_id, door, agent, thread_id, letter_id, firing_id, status, outcome, model, rounds, input_tokens,
    output_tokens, cost, started_at, ended_at, error
FROM runs;

CREATE VIEW audit_tool_calls (run_id, round, position, name, arguments, result, status, started_at, ended_at) AS
SELECT run_id, round, position, name, arguments, result, status, started_at, ended_at
FROM tool_calls;

CREATE VIEW audit_outgoing (id, run_id, thread_id, kind, recipient, subject, message_id, status, attempts, queued_at, sent_at, error) AS
SELECT id, run_id, thread_id, kind, recipient, subject, message_id, status, attempts, queued_at, sent_at, coalesce(reason, error)
FROM outgoing;

CREATE VIEW audit_firings (id, duty, due_at, claimed_at, run_id, status, reason) AS
SELECT id, duty, due_at, claimed_at, run_id, status, reason
FROM firings;

CREATE VIEW audit_questions (id, run_id, kind, asked_of, questions, status, asked_at, expires_at, answer, answered_by, answered_at) AS
SELECT id, run_id, kind, asked_of, questions, status, asked_at, expires_at, answer, answered_by, answered_at
FROM questions;

CREATE VIEW audit_events (seq, at, run_id, kind, data) AS
SELECT seq, at, run_id, kind, data
FROM events;
