-- +goose Up
-- Calls and events are partitioned by time, so that what is too old is dropped and not deleted row by row: see
-- partitions.go. The tables so far become the first partitions and are not rewritten; they are scanned, and nothing
-- reads or writes them meanwhile. Programs before this step cannot work with the result.

-- No retention pass runs meanwhile: one of before would go on in the new tables. The number is that of tendLock.
SELECT pg_advisory_xact_lock(8390047142414478948);
LOCK TABLE invocations, events, writers, marks IN ACCESS EXCLUSIVE MODE;

-- A program of before that still runs must fail, not do harm: its writer leaves writers.entry as it is, and its retention
-- deletes rows of other partitions, for a ctid names one in each of them. So what its writer sets and what
-- its retention reads first have other names.
ALTER TABLE writers RENAME COLUMN committed TO committed_number;
ALTER TABLE marks RENAME TO trimmed;
ALTER INDEX marks_pkey RENAME TO trimmed_pkey;

-- A key is unique across partitions, so it has a row of its own while it is held. Older ones hold nothing any more.
CREATE TABLE call_keys (
	tenant  TEXT COLLATE "C" NOT NULL,
	subject TEXT COLLATE "C" NOT NULL,
	key     TEXT COLLATE "C" NOT NULL,
	id      TEXT COLLATE "C" NOT NULL, -- the call that holds it
	created BIGINT NOT NULL, -- when that was created, nanoseconds since 1970
	PRIMARY KEY (tenant, subject, key)
);
INSERT INTO call_keys (tenant, subject, key, id, created)
	SELECT tenant, subject, hold_key, id, created FROM invocations
	WHERE hold_key <> '' AND created > (extract(epoch FROM now() - interval '25 hours') * 1000000000)::bigint;
CREATE INDEX call_keys_created ON call_keys (created);

-- The newest entry of each writer, so that readers need not look for it in all partitions.
ALTER TABLE writers ADD COLUMN entry BIGINT NOT NULL DEFAULT 0;
UPDATE writers AS w SET entry = greatest(
	(SELECT max(entry) FROM invocations WHERE writer = w.id AND entry IS NOT NULL), (SELECT max(entry) FROM events WHERE writer = w.id), 0);

ALTER TABLE invocations DROP COLUMN hold_key;
ALTER TABLE events DROP CONSTRAINT events_pkey;
ALTER TABLE events ADD CONSTRAINT events_first_pkey PRIMARY KEY (writer, entry, at);
ALTER TABLE invocations RENAME TO invocations_first;
ALTER TABLE events RENAME TO events_first;
-- The partitioned tables get indexes of these names. One with another name was made by an operator and keeps it.
-- +goose StatementBegin
DO $$
DECLARE
	i RECORD;
BEGIN
	FOR i IN SELECT c.relname, replace(t.relname, '_first', '') AS base FROM pg_index AS x
		JOIN pg_class AS c ON c.oid = x.indexrelid JOIN pg_class AS t ON t.oid = x.indrelid
		WHERE x.indrelid IN ('invocations_first'::regclass, 'events_first'::regclass) AND starts_with(c.relname, replace(t.relname, '_first', '_'))
			AND NOT starts_with(c.relname, t.relname || '_')
	LOOP
		EXECUTE format('ALTER INDEX %I RENAME TO %I', i.relname, i.base || '_first' || substr(i.relname, length(i.base) + 1));
	END LOOP;
END $$;
-- +goose StatementEnd

-- Most ids are UUIDs of version 7, whose text has the order of time.
CREATE TABLE invocations (LIKE invocations_first INCLUDING DEFAULTS) PARTITION BY RANGE (id);
CREATE INDEX invocations_created ON invocations (tenant, created);
CREATE INDEX invocations_subject ON invocations (tenant, subject, created);
CREATE INDEX invocations_tool ON invocations (tenant, tool, created);
CREATE INDEX invocations_trouble ON invocations (tenant, state, created)
	WHERE state <> 'succeeded' AND state <> 'running' AND state <> 'queued';
CREATE INDEX invocations_session ON invocations (tenant, session, created) WHERE session <> '';
CREATE INDEX invocations_parent ON invocations (tenant, parent, created) WHERE parent <> '';
CREATE INDEX invocations_running ON invocations (lease_until) WHERE state = 'running';
CREATE INDEX invocations_queued ON invocations (priority) WHERE state = 'queued';
CREATE INDEX invocations_waiting ON invocations (deadline)
	WHERE deadline <> 0 AND state IN ('accepted', 'pending_approval', 'queued');
CREATE INDEX invocations_unfetched ON invocations (expires)
	WHERE expires <> 0 AND fetched = 0 AND state IN ('succeeded', 'failed', 'refused', 'cancelled', 'unknown');
CREATE INDEX invocations_age ON invocations USING brin (created);
CREATE INDEX invocations_cancel ON invocations (lease_owner)
	WHERE cancel_by <> '' AND state IN ('accepted', 'pending_approval', 'queued', 'running', 'input_required');
CREATE INDEX invocations_journal ON invocations (writer, entry) WHERE entry IS NOT NULL;
-- The last one: in an empty partition several indexes seem to cost the same, and PostgreSQL takes the newest. A plan
-- that was made then is kept while the partition fills.
ALTER TABLE invocations ADD CONSTRAINT invocations_pkey PRIMARY KEY (tenant, id);

CREATE TABLE events (LIKE events_first INCLUDING DEFAULTS) PARTITION BY RANGE (at);
ALTER TABLE events ADD CONSTRAINT events_pkey PRIMARY KEY (writer, entry, at);
CREATE INDEX events_age ON events USING brin (at);

-- Ids above those of the year 2039 are none of time. What fits nowhere else is in the default partition.
CREATE TABLE invocations_high PARTITION OF invocations FOR VALUES FROM ('02') TO (MAXVALUE) WITH (fillfactor = 90);
CREATE TABLE invocations_other PARTITION OF invocations DEFAULT WITH (fillfactor = 90);
CREATE TABLE events_other PARTITION OF events DEFAULT;

-- The first partitions end at a midnight, at least one hour ahead; rows beyond go where they belong.
-- +goose StatementBegin
DO $$
DECLARE
	ends BIGINT := extract(epoch FROM date_trunc('day', (now() + interval '25 hours') AT TIME ZONE 'UTC') AT TIME ZONE 'UTC');
	hex  TEXT := lpad(to_hex(ends * 1000), 12, '0');
	id   TEXT := substr(hex, 1, 8) || '-' || substr(hex, 9) || '-7';
BEGIN
	-- A small table has the same trouble with its plans; the index of a large one stays as it is.
	IF (SELECT count(*) FROM (SELECT FROM invocations_first LIMIT 10000) AS part) < 10000 THEN
		ALTER TABLE invocations_first DROP CONSTRAINT invocations_first_pkey, ADD CONSTRAINT invocations_first_pkey PRIMARY KEY (tenant, id);
	END IF;
	EXECUTE format('WITH gone AS (DELETE FROM invocations_first WHERE id >= %L RETURNING *) INSERT INTO invocations SELECT * FROM gone', id);
	EXECUTE format('ALTER TABLE invocations ATTACH PARTITION invocations_first FOR VALUES FROM (MINVALUE) TO (%L)', id);
	EXECUTE format('WITH gone AS (DELETE FROM events_first WHERE at >= %L RETURNING *) INSERT INTO events SELECT * FROM gone', ends * 1000000);
	EXECUTE format('ALTER TABLE events ATTACH PARTITION events_first FOR VALUES FROM (MINVALUE) TO (%L)', ends * 1000000);
END $$;
-- +goose StatementEnd

UPDATE toolkeep_floor SET version = greatest(version, 11);

-- +goose Down
-- All rows are written once more, into one table each.
LOCK TABLE invocations, events, writers, trimmed IN ACCESS EXCLUSIVE MODE;
ALTER TABLE writers DROP COLUMN entry;
ALTER TABLE writers RENAME COLUMN committed_number TO committed;
ALTER TABLE trimmed RENAME TO marks;
ALTER INDEX trimmed_pkey RENAME TO marks_pkey;

CREATE TABLE invocations_one (LIKE invocations INCLUDING DEFAULTS) WITH (fillfactor = 90);
INSERT INTO invocations_one SELECT * FROM invocations;
DROP TABLE invocations;
ALTER TABLE invocations_one RENAME TO invocations;
ALTER TABLE invocations ADD COLUMN hold_key TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE invocations AS i SET hold_key = k.key FROM call_keys AS k WHERE k.tenant = i.tenant AND k.id = i.id AND k.subject = i.subject;
ALTER TABLE invocations ADD CONSTRAINT invocations_pkey PRIMARY KEY (tenant, id);
CREATE INDEX invocations_created ON invocations (tenant, created);
CREATE INDEX invocations_subject ON invocations (tenant, subject, created);
CREATE INDEX invocations_tool ON invocations (tenant, tool, created);
CREATE INDEX invocations_trouble ON invocations (tenant, state, created)
	WHERE state <> 'succeeded' AND state <> 'running' AND state <> 'queued';
CREATE INDEX invocations_session ON invocations (tenant, session, created) WHERE session <> '';
CREATE INDEX invocations_parent ON invocations (tenant, parent, created) WHERE parent <> '';
CREATE INDEX invocations_running ON invocations (lease_until) WHERE state = 'running';
CREATE INDEX invocations_queued ON invocations (priority) WHERE state = 'queued';
CREATE INDEX invocations_waiting ON invocations (deadline)
	WHERE deadline <> 0 AND state IN ('accepted', 'pending_approval', 'queued');
CREATE INDEX invocations_unfetched ON invocations (expires)
	WHERE expires <> 0 AND fetched = 0 AND state IN ('succeeded', 'failed', 'refused', 'cancelled', 'unknown');
CREATE INDEX invocations_age ON invocations USING brin (created);
CREATE INDEX invocations_cancel ON invocations (lease_owner)
	WHERE cancel_by <> '' AND state IN ('accepted', 'pending_approval', 'queued', 'running', 'input_required');
CREATE INDEX invocations_journal ON invocations (writer, entry) WHERE entry IS NOT NULL;
CREATE UNIQUE INDEX invocations_key ON invocations (tenant, subject, hold_key) WHERE hold_key <> '';
DROP TABLE call_keys;

CREATE TABLE events_one (LIKE events INCLUDING DEFAULTS);
INSERT INTO events_one SELECT * FROM events;
DROP TABLE events;
ALTER TABLE events_one RENAME TO events;
ALTER TABLE events ADD CONSTRAINT events_pkey PRIMARY KEY (writer, entry);
CREATE INDEX events_age ON events USING brin (at);

UPDATE toolkeep_floor SET version = 8 WHERE version = 11;
