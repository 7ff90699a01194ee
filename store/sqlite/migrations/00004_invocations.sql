-- +goose Up
-- Columns beside data are what queries need and what changes by itself. Times
-- are nanoseconds since 1970, 0 for none. The large values come last.
CREATE TABLE invocations (
	tenant      TEXT NOT NULL,
	id          TEXT NOT NULL,
	subject     TEXT NOT NULL,
	tool        TEXT NOT NULL,
	session     TEXT NOT NULL,
	parent      TEXT NOT NULL,
	state       TEXT NOT NULL,
	created     INTEGER NOT NULL,
	hold_key    TEXT NOT NULL DEFAULT '', -- the idempotency key while it is held
	priority    TEXT NOT NULL DEFAULT '',
	deadline    INTEGER NOT NULL DEFAULT 0,
	expires     INTEGER NOT NULL DEFAULT 0,
	fetched     INTEGER NOT NULL DEFAULT 0,
	lease_owner TEXT NOT NULL DEFAULT '',
	lease_until INTEGER NOT NULL DEFAULT 0,
	cancel_by   TEXT NOT NULL DEFAULT '',
	cancel_why  TEXT NOT NULL DEFAULT '',
	progress    BLOB,
	data        BLOB NOT NULL,
	sealed      BLOB,
	output      BLOB,
	PRIMARY KEY (tenant, id)
) STRICT;

CREATE INDEX invocations_created ON invocations (tenant, created);
CREATE INDEX invocations_subject ON invocations (tenant, subject, created);
CREATE INDEX invocations_tool ON invocations (tenant, tool, created);
-- Most calls succeed: only the others are worth an index by state.
CREATE INDEX invocations_trouble ON invocations (tenant, state, created)
	WHERE state <> 'succeeded' AND state <> 'running' AND state <> 'queued';
CREATE INDEX invocations_session ON invocations (tenant, session, created) WHERE session <> '';
CREATE INDEX invocations_parent ON invocations (tenant, parent, created) WHERE parent <> '';
CREATE UNIQUE INDEX invocations_key ON invocations (tenant, subject, hold_key) WHERE hold_key <> '';
CREATE INDEX invocations_running ON invocations (lease_until) WHERE state = 'running';
CREATE INDEX invocations_queued ON invocations (priority) WHERE state = 'queued';
CREATE INDEX invocations_waiting ON invocations (deadline)
	WHERE deadline <> 0 AND state IN ('accepted', 'pending_approval', 'queued');
CREATE INDEX invocations_unfetched ON invocations (expires)
	WHERE expires <> 0 AND fetched = 0 AND state IN ('succeeded', 'failed', 'refused', 'cancelled', 'unknown');

-- What the feed still holds of recorded calls is indexed anew.
DELETE FROM marks WHERE name = 'indexed';

-- +goose Down
DROP TABLE invocations;
DELETE FROM marks WHERE name = 'indexed';
