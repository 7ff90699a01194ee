-- +goose Up
CREATE TABLE api_keys (
	tenant TEXT NOT NULL,
	id     TEXT NOT NULL,
	data   BLOB NOT NULL, -- JSON
	PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE api_keys;
