-- What retention looks for by age (email B16, K3), so that it never reads a table whole: what still has content, and what is
-- old enough to go with its row.

-- Whether a message's raw bytes are kept: 'plain', 'attached' when they hold attachments or may, nothing when they are gone.
ALTER TABLE received ADD COLUMN raw_kept TEXT CHECK (raw_kept IN ('plain', 'attached'));
UPDATE received SET raw_kept =
    CASE WHEN inbound IS NULL OR json_array_length(inbound, '$.attachments') > 0 THEN 'attached' ELSE 'plain' END
WHERE id IN (SELECT received_id FROM raw_letters);

-- When a run's prompt, answers and results went.
ALTER TABLE runs ADD COLUMN expired_at TEXT;

CREATE INDEX received_with_raw ON received (raw_kept, received_at) WHERE raw_kept IS NOT NULL;
CREATE INDEX received_with_text ON received (received_at) WHERE inbound IS NOT NULL;
CREATE INDEX runs_with_content ON runs (ended_at) WHERE expired_at IS NULL AND ended_at IS NOT NULL;
CREATE INDEX outgoing_with_content ON outgoing (queued_at) WHERE bytes <> x'';

CREATE INDEX letters_by_age ON letters (received_at);
CREATE INDEX outgoing_by_age ON outgoing (queued_at);
CREATE INDEX events_by_age ON events (at);
CREATE INDEX runs_without_letter ON runs (ended_at) WHERE letter_id IS NULL;

-- What somebody still has to do with is never touched, however old it is.
CREATE VIEW unfinished_runs (id, letter_id) AS
SELECT r.id, r.letter_id
FROM runs r
WHERE r.ended_at IS NULL
    OR EXISTS (SELECT 1 FROM outgoing o WHERE o.run_id = r.id AND o.status IN ('held', 'queued', 'sending', 'uncertain'));

CREATE VIEW unfinished_letters (id, received_id) AS
SELECT l.id, l.received_id
FROM letters l
WHERE l.verdict = 'held'
    OR (l.verdict = 'accepted' AND l.run_id IS NULL)
    OR EXISTS (SELECT 1 FROM unfinished_runs u WHERE u.letter_id = l.id);
