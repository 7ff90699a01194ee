-- +goose Up
-- What happens in calls is no longer in the feed. The numbers go on from those of the
-- feed, so that marks and positions stay right.
CREATE TABLE journal (
	seq    INTEGER PRIMARY KEY AUTOINCREMENT,
	at     INTEGER NOT NULL, -- microseconds since 1970
	kind   INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	ref    TEXT NOT NULL,
	data   BLOB NOT NULL
) STRICT;
INSERT INTO sqlite_sequence (name, seq) SELECT 'journal', seq FROM sqlite_sequence WHERE name = 'feed';

-- Events (kind 10) and the ends of calls (1 and 3) move, without items, whose rows are
-- events of a type that begins with toolkeep.item. The other kinds below 10 told of calls
-- under way, of which the table of calls has the state.
INSERT INTO journal (seq, at, kind, tenant, ref, data)
	SELECT seq, at, kind, tenant, ref, data FROM feed
	WHERE kind IN (1, 3) OR (kind = 10 AND substr(data, 3, 14) <> CAST('toolkeep.item.' AS BLOB));
DELETE FROM feed WHERE kind < 10 OR (kind = 10 AND substr(data, 3, 14) <> CAST('toolkeep.item.' AS BLOB));

-- +goose Down
-- The journal goes to the end of the feed, and what it holds is indexed again; without the
-- ends of claimed calls (kind 8), which older programs cannot read there.
INSERT INTO feed (at, kind, tenant, ref, data)
	SELECT at, kind, tenant, ref, data FROM journal WHERE kind IN (1, 3, 10) ORDER BY seq;
DROP TABLE journal;
DELETE FROM marks WHERE name IN ('indexed', 'trimmed calls', 'trimmed events');
