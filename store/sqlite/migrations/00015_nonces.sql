-- +goose Up
-- Nonces of signed requests that were taken, as hashes.
CREATE TABLE nonces (
	nonce BLOB PRIMARY KEY,
	at    INTEGER NOT NULL -- microseconds since 1970
) STRICT, WITHOUT ROWID;
CREATE INDEX nonces_at ON nonces (at);

-- +goose Down
DROP TABLE nonces;
