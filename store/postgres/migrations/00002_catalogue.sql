-- +goose Up
CREATE TABLE versions (
	tenant   TEXT COLLATE "C" NOT NULL,
	id       TEXT COLLATE "C" NOT NULL,
	version  TEXT COLLATE "C" NOT NULL,
	digest   TEXT COLLATE "C" NOT NULL,
	life     BYTEA NOT NULL, -- JSON, kept to the byte
	raw      BYTEA NOT NULL, -- the manifest as published
	manifest BYTEA NOT NULL, -- its typed reading with defaults, JSON
	PRIMARY KEY (tenant, id, version)
);

-- +goose Down
DROP TABLE versions;
