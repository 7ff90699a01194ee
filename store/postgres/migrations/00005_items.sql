-- +goose Up
-- A dropped item leaves its revision behind for a while, so that one made anew
-- goes on with the count.
CREATE TABLE items (
	kind     TEXT COLLATE "C" NOT NULL,
	tenant   TEXT COLLATE "C" NOT NULL,
	id       TEXT COLLATE "C" NOT NULL,
	revision BIGINT NOT NULL,
	dropped  BOOLEAN NOT NULL DEFAULT FALSE,
	at       BIGINT NOT NULL, -- of the last change, nanoseconds since 1970
	by       TEXT COLLATE "C" NOT NULL,
	body     BYTEA NOT NULL,
	PRIMARY KEY (kind, tenant, id)
);
CREATE INDEX items_dropped ON items (at) WHERE dropped;

-- +goose Down
DROP TABLE items;
