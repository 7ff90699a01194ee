-- +goose Up
-- How far readers of the journal, such as sinks of events, have come in what each writer wrote.
CREATE TABLE cursors (
	reader TEXT NOT NULL,
	writer BIGINT NOT NULL,
	seq    BIGINT NOT NULL,
	at     BIGINT NOT NULL, -- of the entry, microseconds since 1970
	PRIMARY KEY (reader, writer)
);

-- +goose Down
DROP TABLE cursors;
