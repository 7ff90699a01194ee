-- +goose Up
-- What the nodes of this database say of themselves, and which of them leads a work.
-- This database's clock decides who lives and who leads.
CREATE TABLE nodes (
	name    TEXT COLLATE "C" PRIMARY KEY,
	run     TEXT COLLATE "C" NOT NULL,
	version TEXT NOT NULL,
	url     TEXT NOT NULL,
	started TIMESTAMPTZ NOT NULL,
	seen    TIMESTAMPTZ NOT NULL,
	data    BYTEA NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE leads (
	work  TEXT COLLATE "C" PRIMARY KEY,
	name  TEXT COLLATE "C" NOT NULL,
	run   TEXT COLLATE "C" NOT NULL,
	until TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE leads;
DROP TABLE nodes;
