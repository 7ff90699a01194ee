-- +goose Up
-- How far readers of the journal, such as sinks of events, have come in what each run wrote.
CREATE TABLE cursors (
	reader TEXT NOT NULL,
	writer INTEGER NOT NULL,
	seq    INTEGER NOT NULL,
	at     INTEGER NOT NULL, -- of the entry, microseconds since 1970
	PRIMARY KEY (reader, writer)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE cursors;
