package sqlite

// The writer's statements, prepared once. The number is the index into writer.stmts.
const (
	sqlFeed1 = iota
	sqlJournal1
	sqlJournal8
	sqlJournal32
	sqlIndex1
	sqlIndex8
	sqlSavepoint
	sqlRelease
	sqlRollback
	sqlNoteClaim
	sqlNoteOutput
	sqlDropNotes
	sqlClaim
	sqlHasCall
	sqlKeyHolder
	sqlFreeRow
	sqlFreeCall
	sqlMove
	sqlRename
	sqlState
	sqlRenew
	sqlCancel
	sqlProgress
	sqlFetched
	sqlNonce
	sqlMark
	sqlDigest
	sqlPublish
	sqlPart
	sqlLife
	sqlLifeOf
	sqlPutKey
	sqlKeyData
	sqlPutDocument
	sqlNextDocument
	sqlDropDocument
	sqlDocument
	sqlFirstCursor
	sqlCursor
	statementCount
)

const notEnded = ` state IN ('accepted', 'pending_approval', 'queued', 'running', 'input_required')`
const ended = ` state IN ('succeeded', 'failed', 'refused', 'cancelled', 'expired', 'unknown')`

// moveWhere is the condition for moving a call.
const moveWhere = ` WHERE tenant = ?1 AND id = ?2 AND instr(?3, ',' || state || ',')
	AND (?4 = '' OR lease_owner IN ('', ?4) OR lease_until <= ?5)`

func statements() [statementCount]string {
	const columns = ` (seq, at, kind, tenant, ref, data) VALUES `
	const entry = `INSERT INTO journal (seq, at, kind, tenant, ref, data, hash) VALUES `
	index := `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created, data,
		hold_key, lease_owner, lease_until, output) VALUES `
	return [statementCount]string{
		sqlFeed1:     `INSERT INTO feed` + columns + tuples(1, 6),
		sqlJournal1:  entry + tuples(1, 7),
		sqlJournal8:  entry + tuples(8, 7),
		sqlJournal32: entry + tuples(32, 7),
		sqlIndex1:    index + tuples(1, 13) + ` ON CONFLICT DO NOTHING`,
		sqlIndex8:    index + tuples(8, 13) + ` ON CONFLICT DO NOTHING`,

		sqlSavepoint: `SAVEPOINT one`,
		sqlRelease:   `RELEASE one`,
		sqlRollback:  `ROLLBACK TO one`,

		// 2 and 3 are the call, 5 and 6 its subject and key.
		sqlNoteClaim: `INSERT INTO claims (seq, tenant, id, data) SELECT ?1, ?2, ?3, ?4
			WHERE NOT EXISTS (SELECT 1 FROM invocations WHERE tenant = ?2 AND id = ?3)
			AND NOT EXISTS (SELECT 1 FROM invocations WHERE tenant = ?2 AND subject = ?5 AND hold_key = ?6 AND hold_key <> '')`,
		sqlNoteOutput: `INSERT INTO claims (seq, tenant, id, output) VALUES (?, ?, ?, ?)`,
		sqlDropNotes:  `DELETE FROM claims WHERE seq <= ?`,
		sqlClaim: `INSERT INTO invocations (tenant, id, subject, tool, session, parent, state, created,
			hold_key, priority, deadline, expires, fetched, lease_owner, lease_until, cancel_by, cancel_why,
			progress, data, sealed, output) VALUES ` + tuples(1, 21),
		sqlHasCall:   `SELECT 1 FROM invocations WHERE tenant = ? AND id = ?`,
		sqlKeyHolder: `SELECT rowid, created FROM invocations WHERE tenant = ? AND subject = ? AND hold_key = ? AND hold_key <> ''`,
		sqlFreeRow:   `UPDATE invocations SET hold_key = '' WHERE rowid = ?`,
		sqlFreeCall:  `UPDATE invocations SET hold_key = '' WHERE tenant = ? AND id = ?`,
		// 3 the states to move from, 4 the mover, 5 now, 6 to 10 the rarely changing
		// columns, 16 whether the call continues, 17 and 18 the new lease.
		sqlMove: `UPDATE invocations SET state = ?11, priority = ?12, deadline = ?13, expires = ?14,
			fetched = CASE WHEN fetched <> 0 THEN fetched ELSE ?15 END,
			lease_owner = CASE WHEN ?16 AND ?4 = '' AND lease_owner NOT IN ('', ?17) AND lease_until > ?5
				THEN lease_owner ELSE ?17 END,
			lease_until = CASE WHEN ?16 AND ?4 = '' AND lease_owner NOT IN ('', ?17) AND lease_until > ?5
				THEN lease_until ELSE ?18 END,
			ended = CASE WHEN ended IS NULL AND` + ended + ` THEN data ELSE ended END,
			data = ?19, sealed = ?20, output = ?21` + moveWhere +
			` AND subject = ?6 AND tool = ?7 AND session = ?8 AND parent = ?9 AND created = ?10`,
		sqlRename: `UPDATE invocations SET subject = ?6, tool = ?7, session = ?8, parent = ?9, created = ?10` + moveWhere,
		sqlState:  `SELECT state FROM invocations WHERE tenant = ? AND id = ?`,
		sqlRenew: `UPDATE invocations SET lease_until = max(lease_until, ?1)
			WHERE tenant = ?2 AND id = ?3 AND lease_owner = ?4 AND` + notEnded,
		sqlCancel: `UPDATE invocations SET cancel_by = ?1, cancel_why = ?2
			WHERE tenant = ?3 AND id = ?4 AND cancel_by = '' AND` + notEnded,
		sqlProgress: `UPDATE invocations SET progress = ?1 WHERE tenant = ?2 AND id = ?3 AND` + notEnded,
		sqlFetched:  `UPDATE invocations SET fetched = ?1 WHERE tenant = ?2 AND id = ?3 AND fetched = 0 AND` + ended,
		sqlNonce:    `INSERT INTO nonces (nonce, at) VALUES (?, ?) ON CONFLICT DO NOTHING`,
		sqlMark: `INSERT INTO marks (name, seq) VALUES ('indexed', ?)
			ON CONFLICT (name) DO UPDATE SET seq = excluded.seq`,

		sqlDigest: `SELECT digest FROM versions WHERE tenant = ? AND id = ? AND version = ?`,
		sqlPublish: `INSERT INTO versions (tenant, id, version, digest, life, outline, manifest, words) VALUES ` +
			tuples(1, 8),
		sqlPart:   `INSERT INTO manifest_parts (tenant, digest, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
		sqlLifeOf: `SELECT life FROM versions WHERE tenant = ? AND id = ? AND version = ?`,
		sqlLife:   `UPDATE versions SET life = ? WHERE tenant = ? AND id = ? AND version = ?`,
		sqlPutKey: `INSERT INTO api_keys (tenant, id, data) VALUES (?, ?, ?)
			ON CONFLICT (tenant, id) DO UPDATE SET data = excluded.data`,
		sqlKeyData: `SELECT data FROM api_keys WHERE tenant = ? AND id = ?`,

		// 1 to 3 the item, 4 the time, 5 the author, 6 the body, 7 the expected
		// revision.
		sqlPutDocument: `INSERT INTO items (kind, tenant, id, revision, at, by, body) VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6)
			ON CONFLICT (kind, tenant, id) DO UPDATE
			SET revision = revision + 1, dropped = 0, at = excluded.at, by = excluded.by, body = excluded.body
			WHERE dropped = 1 OR ?7 = -1
			RETURNING revision`,
		sqlNextDocument: `UPDATE items SET revision = revision + 1, at = ?4, by = ?5, body = ?6
			WHERE kind = ?1 AND tenant = ?2 AND id = ?3 AND dropped = 0 AND revision = ?7
			RETURNING revision`,
		sqlDropDocument: `UPDATE items SET dropped = 1, at = ?4, by = ?5, body = NULL
			WHERE kind = ?1 AND tenant = ?2 AND id = ?3 AND dropped = 0 AND (?6 = -1 OR revision = ?6)`,
		sqlFirstCursor: `INSERT INTO cursors (reader, writer, seq, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		sqlCursor:      `UPDATE cursors SET seq = ?3, at = ?4 WHERE reader = ?1 AND writer = ?2 AND seq = ?5`,
		sqlDocument:    `SELECT revision FROM items WHERE kind = ? AND tenant = ? AND id = ? AND dropped = 0`,
	}
}

// tuples returns n tuples of placeholders.
func tuples(n, columns int) string {
	b := make([]byte, 0, n*(2*columns+2))
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '(')
		for j := range columns {
			if j > 0 {
				b = append(b, ',')
			}
			b = append(b, '?')
		}
		b = append(b, ')')
	}
	return string(b)
}
