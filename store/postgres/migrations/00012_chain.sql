-- +goose Up
-- Each entry of the journal has its hash, which covers the tenant's entry of the same writer before it; entries
-- from before have none. ended is the data of a call as it ended, if it was replaced since. No row is rewritten.
-- A program of before would write entries without a hash.
ALTER TABLE invocations ADD COLUMN hash BYTEA, ADD COLUMN ended BYTEA;
ALTER TABLE events ADD COLUMN hash BYTEA;

-- Events are searched by time within a tenant.
CREATE INDEX events_tenant ON events (tenant, at);

UPDATE toolkeep_floor SET version = greatest(version, 12);

-- +goose Down
DROP INDEX events_tenant;
ALTER TABLE events DROP COLUMN hash;
ALTER TABLE invocations DROP COLUMN ended, DROP COLUMN hash;
UPDATE toolkeep_floor SET version = 11;
