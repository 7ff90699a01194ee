-- +goose Up
-- The one row whose lock orders all commits: see the package's documentation.
CREATE TABLE feed_head (
	one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
	seq BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO feed_head (seq) VALUES (0);

CREATE TABLE feed (
	seq    BIGINT PRIMARY KEY,
	at     BIGINT NOT NULL, -- microseconds since 1970
	kind   BIGINT NOT NULL,
	tenant TEXT COLLATE "C" NOT NULL,
	ref    TEXT COLLATE "C" NOT NULL,
	data   BYTEA NOT NULL
);

-- How far those came that go through the feed and remove what is too old.
CREATE TABLE marks (
	name TEXT COLLATE "C" PRIMARY KEY,
	seq  BIGINT NOT NULL
);

-- The number that each writer used last, and that of its last transaction, by
-- which it finds out after a lost connection whether that one was committed.
CREATE TABLE writers (
	name      TEXT COLLATE "C" PRIMARY KEY,
	number    BIGINT NOT NULL,
	committed BIGINT NOT NULL,
	at        TIMESTAMPTZ NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- The oldest schema version that a program must know to work with these tables.
-- A migration that older programs cannot live with raises it.
CREATE TABLE toolkeep_floor (
	one     BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
	version BIGINT NOT NULL
);
INSERT INTO toolkeep_floor (version) VALUES (1);

-- +goose Down
DROP TABLE toolkeep_floor;
DROP TABLE writers;
DROP TABLE marks;
DROP TABLE feed;
DROP TABLE feed_head;
