-- +goose Up
-- Nonces of signed requests that were taken, as hashes.
CREATE TABLE nonces (
	nonce BYTEA PRIMARY KEY,
	at    BIGINT NOT NULL -- microseconds since 1970
);
CREATE INDEX nonces_at ON nonces (at);

-- +goose Down
DROP TABLE nonces;
