-- What goes out: one row for each recipient. A row outlives what caused it, so it refers to runs and
-- threads by value alone.

CREATE TABLE outgoing (
    id            INTEGER PRIMARY KEY,
    run_id        TEXT,
    thread_id     INTEGER,
    agent         TEXT,
    mailbox       TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('reply', 'question', 'report', 'notice', 'tool')),
    rank          INTEGER NOT NULL, -- 1 for what may wait behind answers (email G11)
    effect_key    TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    envelope_from TEXT NOT NULL,
    recipient     TEXT NOT NULL COLLATE NOCASE,
    subject       TEXT NOT NULL,
    status        TEXT NOT NULL
        CHECK (status IN ('held', 'queued', 'sending', 'sent', 'uncertain', 'failed', 'rejected', 'bounced')),
    reason        TEXT,
    error         TEXT,
    attempts      INTEGER NOT NULL DEFAULT 0,
    resends       INTEGER NOT NULL DEFAULT 0,
    epoch         INTEGER NOT NULL,
    queued_at     TEXT NOT NULL,
    next_at       TEXT NOT NULL,
    check_at      TEXT,
    sent_at       TEXT,
    copied        INTEGER NOT NULL DEFAULT 0,
    text          TEXT NOT NULL,
    bytes         BLOB NOT NULL,
    UNIQUE (message_id, recipient),
    UNIQUE (effect_key, recipient)
) STRICT;

CREATE INDEX outgoing_in_order ON outgoing (mailbox, rank, id) WHERE status = 'queued';
CREATE INDEX outgoing_queued ON outgoing (mailbox, next_at) WHERE status = 'queued';
CREATE INDEX outgoing_uncertain ON outgoing (mailbox, check_at) WHERE status = 'uncertain';
CREATE INDEX outgoing_sending ON outgoing (epoch) WHERE status = 'sending';
CREATE INDEX outgoing_uncopied ON outgoing (mailbox, id) WHERE status = 'sent' AND copied = 0;
CREATE INDEX outgoing_unfinished ON outgoing (thread_id, id) WHERE status IN ('queued', 'sending', 'uncertain');
CREATE INDEX outgoing_by_thread ON outgoing (thread_id, id);
CREATE INDEX outgoing_by_run ON outgoing (run_id);
CREATE INDEX outgoing_by_recipient ON outgoing (recipient, status);
CREATE INDEX outgoing_by_kind ON outgoing (kind, queued_at);

CREATE TABLE notices (
    key TEXT NOT NULL PRIMARY KEY,
    at  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE switches (
    name TEXT NOT NULL PRIMARY KEY,
    at   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
