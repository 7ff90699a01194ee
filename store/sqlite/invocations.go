package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// invocations reads the invocations table.
type invocations struct{ s *Store }

// Invocations returns the reader of call records. List omits outputs and sealed
// arguments, so that a page is small whatever the calls returned; the other methods
// return whole records.
func (s *Store) Invocations() toolkeep.Invocations { return invocations{s} }

// CallMarks returns the reader of what changes in calls under way.
func (s *Store) CallMarks() toolkeep.CallMarks { return invocations{s} }

// Columns for scanCall, with and without the large ones.
const (
	callColumns  = `tenant, id, data, fetched, lease_owner, lease_until, cancel_by, cancel_why, progress, sealed, output`
	smallColumns = `tenant, id, data, fetched, lease_owner, lease_until, cancel_by, cancel_why, progress, NULL, NULL`
)

// Query conditions; a partial index is used only if its condition is repeated verbatim.
const (
	byKeyWhere  = `tenant = ? AND subject = ? AND hold_key = ? AND hold_key <> '' AND created > ?`
	lapsedWhere = `state = 'running' AND lease_owner <> ''
		AND (lease_until < ?1 OR (?2 <> '' AND lease_owner <> ?2)) ORDER BY lease_until LIMIT ?3`
	overdueWhere = `deadline <> 0 AND state IN ('accepted', 'pending_approval', 'queued')
		AND deadline < ? ORDER BY deadline LIMIT ?`
	unfetchedWhere = `expires <> 0 AND fetched = 0
		AND state IN ('succeeded', 'failed', 'refused', 'cancelled', 'unknown')
		AND expires < ? ORDER BY expires LIMIT ?`
	cancelWhere = `lease_owner = ? AND cancel_by <> '' AND
		state IN ('accepted', 'pending_approval', 'queued', 'running', 'input_required')`
)

// scanCall assembles a call from the record and the columns that change separately.
func scanCall(row interface{ Scan(...any) error }) (*toolkeep.Invocation, error) {
	var tenant, id, owner, by, why string
	var data, progress, sealed, output []byte
	var fetched, until int64
	err := row.Scan(&tenant, &id, &data, &fetched, &owner, &until, &by, &why, &progress, &sealed, &output)
	if err != nil {
		return nil, err
	}
	v, err := record.DecodeCall(tenant, id, data)
	if err != nil {
		return nil, fmt.Errorf("%w: call %s", err, id)
	}
	if fetched != 0 {
		v.FetchedAt = record.FromNanos(fetched)
	}
	v.LeaseOwner, v.LeaseUntil = owner, record.FromNanos(until)
	v.CancelBy, v.CancelWhy = by, why
	if v.Progress, err = record.DecodeProgress(progress); err != nil {
		return nil, fmt.Errorf("%w: progress of call %s", err, id)
	}
	if output != nil {
		v.Output = output
	}
	v.SealedArgs = sealed
	return v, nil
}

// one looks among the pending rows, then in the table: a row is pending until the table has it. has, if not nil, is asked first:
// a query of one column costs half of one for a whole call that is not there.
func (r invocations) one(ctx context.Context, find func() *pendingRow, has, stmt *sql.Stmt, args ...any) (*toolkeep.Invocation, error) {
	if r.s.closed() {
		return nil, toolkeep.ErrClosed
	}
	v, index, err := r.s.recent.seen(find)
	if v != nil || err != nil {
		return v, err
	}
	if index {
		if err := r.s.catchUp(ctx); err != nil {
			return nil, err
		}
	}
	select {
	case r.s.finds <- struct{}{}:
		defer func() { <-r.s.finds }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// A connection is free, so nothing is waited for that could be cancelled. A context that can be costs two goroutines.
	ctx = context.WithoutCancel(ctx)
	if has != nil {
		var one int
		err = has.QueryRowContext(ctx, args...).Scan(&one)
	}
	if err == nil {
		v, err = scanCall(stmt.QueryRowContext(ctx, args...))
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil, toolkeep.ErrNotFound
	}
	return v, r.s.orClosed(err)
}

// Get returns one call; ErrNotFound.
func (r invocations) Get(ctx context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	return r.one(ctx, func() *pendingRow { return r.s.recent.ids[ref] }, nil, r.s.byID, ref.Tenant, ref.ID)
}

// ByKey returns the call that holds an idempotency key, up to Config.KeyKeep after its
// creation; ErrNotFound.
func (r invocations) ByKey(ctx context.Context, tenant, subject, key string) (*toolkeep.Invocation, error) {
	valid := record.Nanos(r.s.cfg.Clock().Add(-r.s.cfg.KeyKeep))
	return r.one(ctx, func() *pendingRow {
		p := r.s.recent.keys[heldKey{tenant, subject, key}]
		if p == nil || p.shown.call == nil || record.Nanos(p.shown.call.CreatedAt) <= valid {
			return nil
		}
		return p
	}, r.s.hasKey, r.s.byKey, tenant, subject, key, valid)
}

// troubleWhere is the condition of the index by state, verbatim.
const troubleWhere = `state <> 'succeeded' AND state <> 'running' AND state <> 'queued'`

// stateTerm makes a query by state use the index by state, if that covers the state:
// most calls succeed, so a scan finds those.
func stateTerm(s toolkeep.CallState) string {
	switch s {
	case toolkeep.CallSucceeded, toolkeep.CallRunning, toolkeep.CallQueued:
		return "state = ?"
	}
	return troubleWhere + " AND state = ?"
}

// troubled reports whether the index by state covers the states.
func troubled(states []toolkeep.CallState) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, func(s toolkeep.CallState) bool { return !strings.HasPrefix(stateTerm(s), troubleWhere) })
}

// filter converts a filter to conditions. Since is inclusive, Until is not.
func filter(f toolkeep.InvocationFilter) (where string, args []any) {
	terms := []string{"tenant = ?"}
	args = []any{f.Tenant}
	add := func(term string, arg any) {
		terms = append(terms, term)
		args = append(args, arg)
	}
	if f.Subject != "" {
		add("subject = ?", f.Subject)
	}
	if f.ToolID != "" {
		add("tool = ?", f.ToolID)
	}
	if f.State != "" {
		add(stateTerm(f.State), string(f.State))
	}
	if len(f.States) > 0 {
		in := "state IN (?" + strings.Repeat(",?", len(f.States)-1) + ")"
		if troubled(f.States) {
			in = troubleWhere + " AND " + in
		}
		terms = append(terms, in)
		for _, s := range f.States {
			args = append(args, string(s))
		}
	}
	if f.Session != "" {
		add("session <> '' AND session = ?", f.Session)
	}
	if f.Parent != "" {
		add("parent <> '' AND parent = ?", f.Parent)
	}
	if !f.Since.IsZero() {
		add("created >= ?", record.Nanos(f.Since))
	}
	if !f.Until.IsZero() {
		add("created < ?", record.Nanos(f.Until))
	}
	return strings.Join(terms, " AND "), args
}

// indexOf names the index for a filter: the one of which the fewest rows are to be expected. By
// itself SQLite, which keeps no statistics here, reads all calls of a period to find those of a tool.
func indexOf(f toolkeep.InvocationFilter) string {
	switch {
	case f.Session != "":
		return "invocations_session"
	case f.Parent != "":
		return "invocations_parent"
	case f.State != "" && strings.HasPrefix(stateTerm(f.State), troubleWhere), troubled(f.States):
		return "invocations_trouble"
	case f.ToolID != "":
		return "invocations_tool"
	case f.Subject != "":
		return "invocations_subject"
	}
	return "invocations_created"
}

// List returns a page, newest first, and the total number up to toolkeep.MaxTotal. A filter without tenant,
// with a negative offset, or with a limit outside 1 to 200 is an error.
func (r invocations) List(ctx context.Context, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
	if f.Tenant == "" || f.Offset < 0 || f.Limit < 1 || f.Limit > 200 {
		return nil, 0, errors.New("sqlite: a filter needs a tenant, an offset from 0 on and a limit from 1 to 200")
	}
	if err := r.s.catchUp(ctx); err != nil {
		return nil, 0, err
	}
	tx, err := r.s.read.BeginTx(ctx, nil)
	if err != nil {
		return nil, 0, r.s.orClosed(err)
	}
	defer tx.Rollback()
	where, args := filter(f)
	from := `FROM invocations INDEXED BY ` + indexOf(f) + ` WHERE ` + where
	var total int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 `+from+` LIMIT ?)`,
		append(args[:len(args):len(args)], toolkeep.MaxTotal)...).Scan(&total); err != nil {
		return nil, 0, r.s.orClosed(err)
	}
	list, err := calls(ctx, tx, `SELECT `+smallColumns+` `+from+
		` ORDER BY created DESC, rowid DESC LIMIT ? OFFSET ?`, append(args, f.Limit, f.Offset)...)
	return list, total, r.s.orClosed(err)
}

func calls(ctx context.Context, q querier, query string, args ...any) ([]*toolkeep.Invocation, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []*toolkeep.Invocation
	for rows.Next() {
		v, err := scanCall(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

func (r invocations) some(ctx context.Context, rest string, args ...any) ([]*toolkeep.Invocation, error) {
	if err := r.s.catchUp(ctx); err != nil {
		return nil, err
	}
	list, err := calls(ctx, r.s.read, `SELECT `+callColumns+` FROM invocations WHERE `+rest, args...)
	return list, r.s.orClosed(err)
}

// Lapsed returns running calls whose lease ended before now, the longest lapsed first;
// with notOwner set, also those of any other owner. A running call without a lease
// never lapses.
func (r invocations) Lapsed(ctx context.Context, now time.Time, notOwner string, limit int) ([]*toolkeep.Invocation, error) {
	return r.some(ctx, lapsedWhere, record.Nanos(now), notOwner, limit)
}

// Overdue returns waiting calls that are not running and whose deadline has passed.
func (r invocations) Overdue(ctx context.Context, now time.Time, limit int) ([]*toolkeep.Invocation, error) {
	return r.some(ctx, overdueWhere, record.Nanos(now), limit)
}

// Unfetched returns ended calls whose result was due to be fetched before now and was
// not. Calls that have already expired are omitted.
func (r invocations) Unfetched(ctx context.Context, now time.Time, limit int) ([]*toolkeep.Invocation, error) {
	return r.some(ctx, unfetchedWhere, record.Nanos(now), limit)
}

// QueueDepth counts queued calls by priority; a call without one counts as normal.
func (r invocations) QueueDepth(ctx context.Context) (map[toolkeep.Priority]int, error) {
	depth := make(map[toolkeep.Priority]int)
	err := r.each(ctx, `SELECT priority, count(*) FROM invocations WHERE state = 'queued' GROUP BY priority`, nil, func(row *sql.Rows) error {
		var p string
		var n int
		if err := row.Scan(&p, &n); err != nil {
			return err
		}
		if p == "" {
			p = string(toolkeep.Normal)
		}
		depth[toolkeep.Priority(p)] += n
		return nil
	})
	if err != nil {
		return nil, err
	}
	return depth, nil
}

// each passes the rows of a query.
func (r invocations) each(ctx context.Context, query string, args []any, row func(*sql.Rows) error) error {
	if err := r.s.catchUp(ctx); err != nil {
		return err
	}
	rows, err := r.s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return r.s.orClosed(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return r.s.orClosed(rows.Err())
}

// maxMarks is how many calls Marks reads at once.
const maxMarks = 1000

// Marks returns the marks of calls; unknown ones are left out. More than 1,000 are an error.
func (r invocations) Marks(ctx context.Context, calls []toolkeep.CallRef) (map[toolkeep.CallRef]toolkeep.CallMark, error) {
	if len(calls) > maxMarks {
		return nil, fmt.Errorf("sqlite: the marks of %d calls were asked for, at most %d are read at once", len(calls), maxMarks)
	}
	marks := make(map[toolkeep.CallRef]toolkeep.CallMark, len(calls))
	if len(calls) == 0 {
		return marks, nil
	}
	args := make([]any, 0, 2*len(calls))
	for _, c := range calls {
		args = append(args, c.Tenant, c.ID)
	}
	err := r.each(ctx, `SELECT tenant, id, state, cancel_by, progress FROM invocations WHERE (tenant, id) IN (VALUES (?, ?)`+
		strings.Repeat(", (?, ?)", len(calls)-1)+`)`, args, func(row *sql.Rows) error {
		var ref toolkeep.CallRef
		var m toolkeep.CallMark
		var progress []byte
		err := row.Scan(&ref.Tenant, &ref.ID, &m.State, &m.CancelBy, &progress)
		if err != nil {
			return err
		}
		if m.Progress, err = record.DecodeProgress(progress); err != nil {
			return fmt.Errorf("%w: progress of call %s", err, ref.ID)
		}
		marks[ref] = m
		return nil
	})
	if err != nil {
		return nil, err
	}
	return marks, nil
}

// CancelRequested returns the calls that have not ended, whose lease the owner has and whose
// cancelling was requested.
func (r invocations) CancelRequested(ctx context.Context, owner string) (refs []toolkeep.CallRef, err error) {
	err = r.each(ctx, `SELECT tenant, id FROM invocations WHERE `+cancelWhere, []any{owner}, func(row *sql.Rows) error {
		var ref toolkeep.CallRef
		err := row.Scan(&ref.Tenant, &ref.ID)
		refs = append(refs, ref)
		return err
	})
	return refs, err
}
