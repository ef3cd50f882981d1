-- The operator's wish that a run ends; the daemon finds it and closes the run.

ALTER TABLE runs ADD COLUMN cancel_at TEXT;

CREATE INDEX runs_to_cancel ON runs (id) WHERE status = 'running' AND cancel_at IS NOT NULL;
