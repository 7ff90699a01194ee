-- +goose Up
-- Calls that were claimed, and what they gave back, until the writer copies them to the table invocations.
CREATE TABLE claims (
	seq    INTEGER PRIMARY KEY,
	tenant TEXT NOT NULL,
	id     TEXT NOT NULL,
	data   BLOB, -- of the call as it was claimed, NULL in the row of an output
	output BLOB
) STRICT;

-- +goose Down
DROP TABLE claims;
