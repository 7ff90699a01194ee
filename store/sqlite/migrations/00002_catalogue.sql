-- +goose Up
CREATE TABLE versions (
	tenant   TEXT NOT NULL,
	id       TEXT NOT NULL,
	version  TEXT NOT NULL,
	digest   TEXT NOT NULL,
	life     BLOB NOT NULL, -- JSON
	raw      BLOB NOT NULL, -- the manifest as published
	manifest BLOB NOT NULL, -- its typed reading with defaults, JSON
	PRIMARY KEY (tenant, id, version)
) STRICT;

-- +goose Down
DROP TABLE versions;
