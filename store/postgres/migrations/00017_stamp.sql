-- +goose Up
-- Entries of one call that several nodes wrote are delivered to sinks in their order. A value of a sequence that is drawn after
-- another one was committed is higher, and no transaction waits for one that drew a value. Calls that are recorded at their
-- end have no entry elsewhere, so they draw none. No row is rewritten.
CREATE SEQUENCE journal_stamp;
ALTER TABLE invocations ADD COLUMN stamp BIGINT;
ALTER TABLE events ADD COLUMN stamp BIGINT;
ALTER TABLE events ALTER COLUMN stamp SET DEFAULT nextval('journal_stamp');

-- +goose Down
ALTER TABLE events DROP COLUMN stamp;
ALTER TABLE invocations DROP COLUMN stamp;
DROP SEQUENCE journal_stamp;
