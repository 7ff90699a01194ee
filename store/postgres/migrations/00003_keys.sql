-- +goose Up
CREATE TABLE api_keys (
	tenant TEXT COLLATE "C" NOT NULL,
	id     TEXT COLLATE "C" NOT NULL,
	data   BYTEA NOT NULL, -- JSON
	PRIMARY KEY (tenant, id)
);

-- +goose Down
DROP TABLE api_keys;
