package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
)

// Each is one statement: it holds no lock longer than that. statement_timestamp is when
// the server got the statement, so a wait for a row's lock makes no lease longer than its
// holder believes.
const (
	nodeColumns = `n.name, n.run, n.version, n.url, n.started, n.seen, n.data,
		ARRAY(SELECT work FROM leads WHERE leads.name = n.name AND leads.run = n.run AND until > statement_timestamp() ORDER BY work)`
	nodeValues = `(name, run, version, url, started, seen, data) VALUES ($1, $2, $3, $4, $5, statement_timestamp(), $6)
		ON CONFLICT (name) DO UPDATE SET run = excluded.run, version = excluded.version, url = excluded.url,
			started = excluded.started, seen = excluded.seen, data = excluded.data`
	// A node that has been silent for a day is removed.
	sqlJoin = `WITH gone AS (DELETE FROM nodes WHERE name <> $1 AND seen < statement_timestamp() - interval '1 day'),
			put AS (INSERT INTO nodes ` + nodeValues + `)
		SELECT ` + nodeColumns + ` FROM nodes AS n WHERE name = $1 AND run <> $2`
	sqlBeat = `WITH put AS (INSERT INTO nodes AS had ` + nodeValues + ` WHERE had.run = excluded.run RETURNING *)
		SELECT ` + nodeColumns + `, statement_timestamp() FROM (
			SELECT * FROM put UNION ALL
			(SELECT * FROM nodes WHERE name <> $1 AND seen > statement_timestamp() - $7 * interval '1 millisecond' ORDER BY name LIMIT 1000)
		) AS n ORDER BY n.name`
	sqlLeave = `WITH gone AS (DELETE FROM nodes WHERE name = $1 AND run = $2) DELETE FROM leads WHERE name = $1 AND run = $2`
	sqlLead  = `INSERT INTO leads AS had (work, name, run, until)
		SELECT $1, name, run, statement_timestamp() + $4 * interval '1 millisecond' FROM nodes WHERE name = $2 AND run = $3
		ON CONFLICT (work) DO UPDATE SET name = excluded.name, run = excluded.run, until = excluded.until
			WHERE had.name = excluded.name AND had.run = excluded.run OR had.until <= statement_timestamp()`
)

func scanNode(row pgx.Row, more ...any) (n toolkeep.NodeState, err error) {
	err = row.Scan(append([]any{&n.Name, &n.Run, &n.Version, &n.URL, &n.StartedAt, &n.SeenAt, &n.Data, &n.Leads}, more...)...)
	n.Name, n.Run, n.Version, n.URL = plainText(n.Name), plainText(n.Run), plainText(n.Version), plainText(n.URL)
	return n, err
}

func nodeArgs(n *toolkeep.NodeState) []any {
	return []any{text(n.Name), text(n.Run), text(n.Version), text(n.URL), n.StartedAt, append([]byte{}, n.Data...)}
}

// Join implements toolkeep.Members.
func (s *Store) Join(ctx context.Context, n toolkeep.NodeState) (before *toolkeep.NodeState, err error) {
	if err := n.Check(); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	err = s.read(ctx, func(ctx context.Context) error {
		was, err := scanNode(s.pool.QueryRow(ctx, sqlJoin, nodeArgs(&n)...))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		before = &was
		return err
	})
	if err != nil {
		return nil, err
	}
	return before, nil
}

// Beat implements toolkeep.Members.
func (s *Store) Beat(ctx context.Context, n toolkeep.NodeState) (nodes []toolkeep.NodeState, now time.Time, err error) {
	if err := n.Check(); err != nil {
		return nil, now, fmt.Errorf("postgres: %w", err)
	}
	here := false
	err = s.read(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, sqlBeat, append(nodeArgs(&n), float64(toolkeep.NodeGone.Milliseconds()))...)
		if err != nil {
			return err
		}
		nodes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (toolkeep.NodeState, error) {
			one, err := scanNode(row, &now)
			here = here || one.Name == n.Name
			return one, err
		})
		return err
	})
	switch {
	case err != nil:
		return nil, time.Time{}, err
	case !here:
		return nil, now, fmt.Errorf("postgres: another process has joined as %s: %w", n.Name, toolkeep.ErrStale)
	}
	s.sharing.Store(int32(len(nodes)))
	return nodes, now, nil
}

// Leave implements toolkeep.Members.
func (s *Store) Leave(ctx context.Context, name, run string) error {
	return s.read(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, sqlLeave, text(name), text(run))
		return err
	})
}

// Lead implements toolkeep.Members.
func (s *Store) Lead(ctx context.Context, work, name, run string, period time.Duration) (leads bool, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, sqlLead, text(work), text(name), text(run), float64(max(1, period.Milliseconds())))
		leads = tag.RowsAffected() == 1
		return err
	})
	return leads && err == nil, err
}

// Leased implements toolkeep.Invocations.
func (r invocations) Leased(ctx context.Context, owner string, limit int) ([]*toolkeep.Invocation, error) {
	return r.some(ctx, ownerWhere, text(owner), limit)
}

const ownerWhere = `state = 'running' AND lease_owner = $1 ORDER BY lease_until LIMIT $2`
