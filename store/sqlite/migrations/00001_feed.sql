-- +goose Up
CREATE TABLE feed (
	seq    INTEGER PRIMARY KEY AUTOINCREMENT,
	at     INTEGER NOT NULL, -- microseconds since 1970
	kind   INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	ref    TEXT NOT NULL,
	data   BLOB NOT NULL
) STRICT;

-- How far a follower of the feed inside the store has come.
CREATE TABLE marks (
	name TEXT PRIMARY KEY,
	seq  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE marks;
DROP TABLE feed;
