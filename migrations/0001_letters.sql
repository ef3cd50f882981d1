-- What came in: raw letters, where they lay, what was decided about them, and their conversations.
-- Times are RFC 3339 UTC text with milliseconds, so that text order is time order.

CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE cursors (
    mailbox     TEXT    NOT NULL,
    folder      TEXT    NOT NULL,
    uidvalidity INTEGER NOT NULL,
    uid         INTEGER NOT NULL,
    PRIMARY KEY (mailbox, folder)
) STRICT, WITHOUT ROWID;

-- One message as a server gave it. Its hash outlives its bytes (email B16).
CREATE TABLE received (
    id          INTEGER PRIMARY KEY,
    mailbox     TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    received_at TEXT NOT NULL,
    nonce       TEXT NOT NULL,
    inbound     TEXT
) STRICT;

CREATE INDEX received_by_hash ON received (mailbox, sha256, received_at);

CREATE TABLE raw_letters (
    received_id INTEGER PRIMARY KEY REFERENCES received (id),
    raw         BLOB NOT NULL
) STRICT;

-- Every place of a folder that is known; without a message when it lay there at the first start.
CREATE TABLE places (
    mailbox     TEXT NOT NULL,
    folder      TEXT NOT NULL,
    place       TEXT NOT NULL,
    received_id INTEGER REFERENCES received (id),
    PRIMARY KEY (mailbox, folder, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE parse_attempts (
    mailbox  TEXT    NOT NULL,
    folder   TEXT    NOT NULL,
    place    TEXT    NOT NULL,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (mailbox, folder, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE threads (
    id         INTEGER PRIMARY KEY,
    agent      TEXT NOT NULL,
    mailbox    TEXT NOT NULL,
    subject    TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('open', 'held')),
    reason     TEXT,
    related_to INTEGER,
    created_at TEXT NOT NULL,
    last_at    TEXT NOT NULL
) STRICT;

CREATE TABLE participants (
    thread_id INTEGER NOT NULL REFERENCES threads (id),
    address   TEXT    NOT NULL COLLATE NOCASE,
    PRIMARY KEY (thread_id, address)
) STRICT, WITHOUT ROWID;

-- One message as one agent got it. It waits while it is accepted and has no run.
CREATE TABLE letters (
    id             INTEGER PRIMARY KEY,
    received_id    INTEGER NOT NULL REFERENCES received (id),
    mailbox        TEXT NOT NULL,
    agent          TEXT,
    own_address    TEXT,
    reply_to       TEXT COLLATE NOCASE,
    reply_domain   TEXT,
    sender         TEXT COLLATE NOCASE,
    message_id     TEXT,
    identity       TEXT NOT NULL,
    subject        TEXT NOT NULL,
    received_at    TEXT NOT NULL,
    accepted_at    TEXT,
    verdict        TEXT NOT NULL CHECK (verdict IN ('accepted', 'ignored', 'held', 'quarantined', 'duplicate')),
    reason         TEXT NOT NULL CHECK (reason <> ''),
    held_by_thread INTEGER NOT NULL DEFAULT 0,
    per_domain     INTEGER NOT NULL DEFAULT 0,
    thread_id      INTEGER REFERENCES threads (id),
    run_id         TEXT REFERENCES runs (id),
    duplicate_of   INTEGER,
    attempts       INTEGER NOT NULL DEFAULT 0,
    epoch          INTEGER NOT NULL
) STRICT;

CREATE INDEX letters_waiting ON letters (thread_id, id) WHERE verdict = 'accepted' AND run_id IS NULL;
CREATE INDEX letters_in_order ON letters (id) WHERE verdict = 'accepted' AND run_id IS NULL;
CREATE INDEX letters_held ON letters (id) WHERE verdict = 'held';
CREATE INDEX letters_by_thread ON letters (thread_id, accepted_at);
CREATE INDEX letters_by_reply_to ON letters (reply_to, accepted_at);
CREATE INDEX letters_by_reply_domain ON letters (reply_domain, accepted_at) WHERE per_domain = 1;
CREATE INDEX letters_by_acceptance ON letters (accepted_at) WHERE accepted_at IS NOT NULL;
CREATE INDEX letters_by_message_id ON letters (message_id);
CREATE INDEX letters_by_received ON letters (received_id);
CREATE INDEX letters_by_run ON letters (run_id);
