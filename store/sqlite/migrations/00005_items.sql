-- +goose Up
-- A dropped item leaves its revision behind for a while, so that one made anew
-- goes on with the count.
CREATE TABLE items (
	kind     TEXT NOT NULL,
	tenant   TEXT NOT NULL,
	id       TEXT NOT NULL,
	revision INTEGER NOT NULL,
	dropped  INTEGER NOT NULL DEFAULT 0, -- 1 if it was
	at       INTEGER NOT NULL,           -- of the last change, nanoseconds since 1970
	by       TEXT NOT NULL,
	body     BLOB,
	PRIMARY KEY (kind, tenant, id)
) STRICT;
CREATE INDEX items_dropped ON items (at) WHERE dropped = 1;

-- +goose Down
DROP TABLE items;
