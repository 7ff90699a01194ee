-- +goose Up
-- Each entry has its hash, which covers the tenant's entry before it in the same run; entries from before
-- have none.
ALTER TABLE journal ADD COLUMN hash BLOB;

-- What opened the file to write, and the number of the first entry that it may have written.
CREATE TABLE runs (
	id    INTEGER PRIMARY KEY AUTOINCREMENT,
	first INTEGER NOT NULL,
	at    INTEGER NOT NULL -- microseconds since 1970
) STRICT;

-- The data of a call as it ended, if it was replaced since.
ALTER TABLE invocations ADD COLUMN ended BLOB;

-- +goose Down
-- Entries whose data is in the table of calls alone mean nothing to older programs.
DELETE FROM journal WHERE kind = 9;
ALTER TABLE invocations DROP COLUMN ended;
DROP TABLE runs;
ALTER TABLE journal DROP COLUMN hash;
DELETE FROM marks WHERE name = 'trimmed short calls';
