package postgres

const (
	notEnded = ` state IN ('accepted', 'pending_approval', 'queued', 'running', 'input_required')`
	ended    = ` state IN ('succeeded', 'failed', 'refused', 'cancelled', 'expired', 'unknown')`
)

// The writer's statements. pgx prepares each once per connection.
const (
	// sqlFence sets the writer's number and its newest entry, and fails with a division by zero if the
	// row does not hold the previous number: see doc.go. It returns the newest position of the feed.
	sqlFence = `WITH mine AS (UPDATE writers SET number = $2, committed_number = $2, entry = $3, at = now() WHERE name = $1 AND number = $2 - 1 RETURNING 1)
		SELECT 1 / count(*), (SELECT seq FROM feed_head) FROM mine`
	sqlHead   = `UPDATE feed_head SET seq = seq + $1 RETURNING seq`
	sqlNotify = `SELECT pg_notify($1, seq::text) FROM feed_head`
	sqlFeed   = `INSERT INTO feed (seq, at, kind, tenant, ref, data)
		SELECT feed_head.seq - $1::bigint + r.n, $2::bigint, r.kind, r.tenant, r.ref, r.data
		FROM feed_head, unnest($3::bigint[], $4::text[], $5::text[], $6::bytea[])
			WITH ORDINALITY AS r (kind, tenant, ref, data, n)`
	// An id that is taken fails it; sqlRecordNew leaves such a call out, which only a group of one call at a time can
	// do: the hashes of the entries after it cover that of a call that is there.
	sqlRecord = `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data, entry, hash, writer)
		SELECT r.*, $12::bigint FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
			$8::bigint[], $9::bytea[], $10::bigint[], $11::bytea[]) AS r`
	sqlRecordNew = sqlRecord + ` ON CONFLICT DO NOTHING`
	sqlEvent     = `INSERT INTO events (writer, at, entry, tenant, id, data, hash)
		SELECT $1::bigint, $2::bigint, r.* FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::bytea[]) AS r`

	// sqlClaim claims a call without a key, sqlClaimKey one with its key, $21. That one checks the
	// id first, so that a claim which changes no row leaves no key behind. If another transaction takes
	// the id at this moment, it fails with a violation of the primary key.
	sqlClaim = `INSERT INTO invocations (` + claimColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
		ON CONFLICT DO NOTHING`
	sqlClaimKey = `WITH taken AS (INSERT INTO call_keys (tenant, subject, key, id, created)
			SELECT $1::text, $3::text, $21::text, $2::text, $8::bigint
			WHERE NOT EXISTS (SELECT FROM invocations WHERE tenant = $1::text AND id = $2::text)
			ON CONFLICT DO NOTHING RETURNING 1)
		INSERT INTO invocations (` + claimColumns + `)
		SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::bigint, $9::text, $10::bigint,
			$11::bigint, $12::bigint, $13::text, $14::bigint, $15::text, $16::text, $17::bytea, $18::bytea, $19::bytea, $20::bytea
		FROM taken`
	claimColumns = `tenant, id, subject, tool, session, parent, state, created, priority, deadline, expires, fetched,
			lease_owner, lease_until, cancel_by, cancel_why, progress, data, sealed, output`
	sqlHasCall   = `SELECT 1 FROM invocations WHERE tenant = $1 AND id = $2`
	sqlKeyHolder = `SELECT id, created FROM call_keys WHERE tenant = $1 AND subject = $2 AND key = $3 FOR UPDATE`
	sqlFreeKey   = `DELETE FROM call_keys WHERE tenant = $1 AND subject = $2 AND key = $3 AND id = $4`
	sqlMoveKey   = `UPDATE call_keys SET subject = $1, created = $2 WHERE tenant = $3 AND subject = $4 AND key = $5 AND id = $6`

	// Condition for moving a call: 3 the states to move from, 4 the mover, 5 now.
	moveWhere = ` WHERE tenant = $1 AND id = $2 AND state = ANY($3::text[])
		AND ($4::text = '' OR lease_owner IN ('', $4::text) OR lease_until <= $5::bigint)`
	// 6 to 10 the rarely changing columns, 16 whether the call continues, 17 and 18 the
	// new lease, 22 to 24 writer, number and hash of the entry, if this is the call's end.
	sqlMove = `UPDATE invocations SET state = $11, priority = $12, deadline = $13, expires = $14,
			fetched = CASE WHEN fetched <> 0 THEN fetched ELSE $15::bigint END,
			lease_owner = CASE WHEN $16::boolean AND $4::text = '' AND lease_owner NOT IN ('', $17::text) AND lease_until > $5::bigint
				THEN lease_owner ELSE $17::text END,
			lease_until = CASE WHEN $16::boolean AND $4::text = '' AND lease_owner NOT IN ('', $17::text) AND lease_until > $5::bigint
				THEN lease_until ELSE $18::bigint END,
			ended = CASE WHEN ended IS NULL AND` + ended + ` THEN data ELSE ended END,
			data = $19, sealed = $20, output = $21,
			writer = coalesce($22::bigint, writer), entry = coalesce($23::bigint, entry), hash = coalesce($24::bytea, hash),
			stamp = CASE WHEN $23::bigint IS NULL THEN stamp ELSE nextval('journal_stamp') END` + moveWhere +
		` AND subject = $6 AND tool = $7 AND session = $8 AND parent = $9 AND created = $10`
	sqlRename  = `UPDATE invocations SET subject = $6, tool = $7, session = $8, parent = $9, created = $10` + moveWhere
	sqlSubject = `SELECT subject FROM invocations WHERE tenant = $1 AND id = $2 FOR UPDATE`
	sqlState   = `SELECT state FROM invocations WHERE tenant = $1 AND id = $2`
	sqlRenew   = `UPDATE invocations SET lease_until = greatest(lease_until, $1)
		WHERE tenant = $2 AND id = $3 AND lease_owner = $4 AND` + notEnded
	sqlCancel = `UPDATE invocations SET cancel_by = $1, cancel_why = $2
		WHERE tenant = $3 AND id = $4 AND cancel_by = '' AND` + notEnded
	sqlProgress = `UPDATE invocations SET progress = $1 WHERE tenant = $2 AND id = $3 AND` + notEnded
	sqlFetched  = `UPDATE invocations SET fetched = $1 WHERE tenant = $2 AND id = $3 AND fetched = 0 AND` + ended

	sqlNonce = `INSERT INTO nonces (nonce, at) VALUES ($1, $2) ON CONFLICT DO NOTHING`

	sqlPublish = `INSERT INTO versions (tenant, id, version, digest, life, outline, manifest, words) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT DO NOTHING`
	sqlParts = `INSERT INTO manifest_parts (tenant, digest, data)
		SELECT $1::text, p.digest, p.data FROM unnest($2::bytea[], $3::bytea[]) AS p (digest, data) ON CONFLICT DO NOTHING`
	sqlDigest = `SELECT digest FROM versions WHERE tenant = $1 AND id = $2 AND version = $3`
	sqlLife   = `UPDATE versions SET life = $1 WHERE tenant = $2 AND id = $3 AND version = $4`
	sqlLifeOf = `SELECT life FROM versions WHERE tenant = $1 AND id = $2 AND version = $3 FOR UPDATE`
	sqlPutKey = `INSERT INTO api_keys (tenant, id, data) VALUES ($1, $2, $3)
		ON CONFLICT (tenant, id) DO UPDATE SET data = excluded.data`
	sqlKeyData = `SELECT data FROM api_keys WHERE tenant = $1 AND id = $2 FOR UPDATE`

	// 1 to 3 the item, 4 the time, 5 the author, 6 the body, 7 the expected revision.
	sqlPutDocument = `INSERT INTO items (kind, tenant, id, revision, at, by, body) VALUES ($1, $2, $3, 1, $4, $5, $6)
		ON CONFLICT (kind, tenant, id) DO UPDATE
		SET revision = items.revision + 1, dropped = FALSE, at = excluded.at, by = excluded.by, body = excluded.body
		WHERE items.dropped OR $7::bigint = -1
		RETURNING revision`
	sqlNextDocument = `UPDATE items SET revision = revision + 1, at = $4, by = $5, body = $6
		WHERE kind = $1 AND tenant = $2 AND id = $3 AND NOT dropped AND revision = $7
		RETURNING revision`
	sqlDropDocument = `UPDATE items SET dropped = TRUE, at = $4, by = $5, body = ''
		WHERE kind = $1 AND tenant = $2 AND id = $3 AND NOT dropped AND ($6::bigint = -1 OR revision = $6)`
	sqlFirstCursor = `INSERT INTO cursors (reader, writer, seq, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`
	sqlCursor      = `UPDATE cursors SET seq = $3, at = $4 WHERE reader = $1 AND writer = $2 AND seq = $5`
	sqlDocument    = `SELECT revision FROM items WHERE kind = $1 AND tenant = $2 AND id = $3 AND NOT dropped`
)
