-- +goose Up
-- Columns beside data are what queries need and what changes by itself. Times
-- are nanoseconds since 1970, 0 for none.
CREATE TABLE invocations (
	tenant      TEXT COLLATE "C" NOT NULL,
	id          TEXT COLLATE "C" NOT NULL,
	subject     TEXT COLLATE "C" NOT NULL,
	tool        TEXT COLLATE "C" NOT NULL,
	session     TEXT COLLATE "C" NOT NULL,
	parent      TEXT COLLATE "C" NOT NULL,
	state       TEXT COLLATE "C" NOT NULL,
	created     BIGINT NOT NULL,
	hold_key    TEXT COLLATE "C" NOT NULL DEFAULT '', -- the idempotency key while it is held
	priority    TEXT COLLATE "C" NOT NULL DEFAULT '',
	deadline    BIGINT NOT NULL DEFAULT 0,
	expires     BIGINT NOT NULL DEFAULT 0,
	fetched     BIGINT NOT NULL DEFAULT 0,
	lease_owner TEXT COLLATE "C" NOT NULL DEFAULT '',
	lease_until BIGINT NOT NULL DEFAULT 0,
	cancel_by   TEXT COLLATE "C" NOT NULL DEFAULT '',
	cancel_why  TEXT COLLATE "C" NOT NULL DEFAULT '',
	progress    BYTEA,
	data        BYTEA NOT NULL,
	sealed      BYTEA,
	output      BYTEA,
	PRIMARY KEY (tenant, id)
) WITH (fillfactor = 90);

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
-- Rows lie in about the order of creation, so this finds the old ones for almost nothing.
CREATE INDEX invocations_age ON invocations USING brin (created);

-- +goose Down
DROP TABLE invocations;
