package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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
	smallColumns = `tenant, id, data, fetched, lease_owner, lease_until, cancel_by, cancel_why, progress, NULL::bytea, NULL::bytea`
)

// Query conditions; a partial index is used only if the query implies its condition.
const (
	lapsedWhere = `state = 'running' AND lease_owner <> ''
		AND (lease_until < $1 OR ($2::text <> '' AND lease_owner <> $2::text)) ORDER BY lease_until LIMIT $3`
	overdueWhere = `deadline <> 0 AND state IN ('accepted', 'pending_approval', 'queued')
		AND deadline < $1 ORDER BY deadline LIMIT $2`
	unfetchedWhere = `expires <> 0 AND fetched = 0
		AND state IN ('succeeded', 'failed', 'refused', 'cancelled', 'unknown')
		AND expires < $1 ORDER BY expires LIMIT $2`
	cancelWhere = `lease_owner = $1 AND cancel_by <> '' AND` + notEnded
)

// scanCall assembles a call from the record and the columns that change separately.
func scanCall(row pgx.CollectableRow) (*toolkeep.Invocation, error) {
	var tenant, id, owner, by, why string
	var data, progress, sealed, output []byte
	var fetched, until int64
	err := row.Scan(&tenant, &id, &data, &fetched, &owner, &until, &by, &why, &progress, &sealed, &output)
	if err != nil {
		return nil, err
	}
	v, err := record.DecodeCall(plainText(tenant), plainText(id), data)
	if err != nil {
		return nil, damaged(fmt.Errorf("%w: call %s", err, id))
	}
	if fetched != 0 {
		v.FetchedAt = record.FromNanos(fetched)
	}
	v.LeaseOwner, v.LeaseUntil = plainText(owner), record.FromNanos(until)
	v.CancelBy, v.CancelWhy = plainText(by), plainText(why)
	if v.Progress, err = record.DecodeProgress(progress); err != nil {
		return nil, damaged(fmt.Errorf("%w: progress of call %s", err, id))
	}
	if output != nil {
		v.Output = output
	}
	v.SealedArgs = sealed
	return v, nil
}

func (r invocations) some(ctx context.Context, rest string, args ...any) (list []*toolkeep.Invocation, err error) {
	err = r.s.read(ctx, func(ctx context.Context) error {
		rows, err := r.s.pool.Query(ctx, `SELECT `+callColumns+` FROM invocations WHERE `+rest, args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanCall)
		return err
	})
	return list, err
}

const sqlGet = `SELECT ` + callColumns + ` FROM invocations WHERE tenant = $1 AND id = $2`

// Get returns one call; ErrNotFound.
func (r invocations) Get(ctx context.Context, ref toolkeep.CallRef) (v *toolkeep.Invocation, err error) {
	get := func(ctx context.Context) error {
		rows, err := r.s.pool.Query(ctx, r.s.callsIn(ref.ID).get, text(ref.Tenant), text(ref.ID))
		if err != nil {
			return err
		}
		v, err = pgx.CollectExactlyOneRow(rows, scanCall)
		if errors.Is(err, pgx.ErrNoRows) {
			return toolkeep.ErrNotFound
		}
		return err
	}
	if err = r.s.read(ctx, get); r.s.dropped(err) {
		err = r.s.read(ctx, get)
	}
	return v, err
}

// sqlByKey finds the call that holds a key. A condition on its time would make the index of times
// as good as the primary key, as long as there are few keys.
const sqlByKey = `SELECT id, created FROM call_keys WHERE tenant = $1 AND subject = $2 AND key = $3`

// ByKey returns the call that holds an idempotency key, up to Config.KeyKeep after its
// creation; ErrNotFound.
func (r invocations) ByKey(ctx context.Context, tenant, subject, key string) (*toolkeep.Invocation, error) {
	var id string
	var created int64
	err := r.s.read(ctx, func(ctx context.Context) error {
		err := r.s.pool.QueryRow(ctx, sqlByKey, text(tenant), text(subject), text(key)).Scan(&id, &created)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && created <= record.Nanos(r.s.cfg.Clock().Add(-r.s.cfg.KeyKeep)) {
			return toolkeep.ErrNotFound
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.Get(ctx, toolkeep.CallRef{Tenant: tenant, ID: plainText(id)})
}

// troubleWhere is the condition of the index by state.
const troubleWhere = `state <> 'succeeded' AND state <> 'running' AND state <> 'queued'`

// filter converts a filter to conditions. Since is inclusive, Until is not.
func filter(f toolkeep.InvocationFilter) (where string, args []any) {
	var terms []string
	add := func(term string, arg any) {
		args = append(args, arg)
		terms = append(terms, term+"$"+strconv.Itoa(len(args)))
	}
	add("tenant = ", text(f.Tenant))
	if f.Subject != "" {
		add("subject = ", text(f.Subject))
	}
	if f.ToolID != "" {
		add("tool = ", text(f.ToolID))
	}
	switch f.State {
	case "":
	case toolkeep.CallSucceeded, toolkeep.CallRunning, toolkeep.CallQueued: // most calls: a scan finds them
		add("state = ", text(string(f.State)))
	default:
		add(troubleWhere+" AND state = ", text(string(f.State)))
	}
	if len(f.States) > 0 {
		most := slices.ContainsFunc(f.States, func(s toolkeep.CallState) bool {
			return s == toolkeep.CallSucceeded || s == toolkeep.CallRunning || s == toolkeep.CallQueued
		})
		states := make([]string, len(f.States))
		for i, s := range f.States {
			states[i] = text(string(s))
		}
		add("state = ANY(", states)
		terms[len(terms)-1] += ")"
		if !most {
			terms = append(terms, troubleWhere)
		}
	}
	if f.Session != "" {
		add("session <> '' AND session = ", text(f.Session))
	}
	if f.Parent != "" {
		add("parent <> '' AND parent = ", text(f.Parent))
	}
	if !f.Since.IsZero() {
		add("created >= ", record.Nanos(f.Since))
	}
	if !f.Until.IsZero() {
		add("created < ", record.Nanos(f.Until))
	}
	return strings.Join(terms, " AND "), args
}

// List returns a page, newest first, and the total number up to toolkeep.MaxTotal. A filter without tenant,
// with a negative offset, or with a limit outside 1 to 200 is an error.
func (r invocations) List(ctx context.Context, f toolkeep.InvocationFilter) (list []*toolkeep.Invocation, total int, err error) {
	if f.Tenant == "" || f.Offset < 0 || f.Limit < 1 || f.Limit > 200 {
		return nil, 0, errors.New("postgres: a filter needs a tenant, an offset from 0 on and a limit from 1 to 200")
	}
	where, args := filter(f)
	count := fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM invocations WHERE %s LIMIT $%d) AS counted`, where, len(args)+1)
	page := fmt.Sprintf(`SELECT %s FROM invocations WHERE %s ORDER BY created DESC, id DESC LIMIT $%d OFFSET $%d`,
		smallColumns, where, len(args)+1, len(args)+2)
	err = r.s.read(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, r.s.pool, oneMoment(), func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, count, append(args[:len(args):len(args)], toolkeep.MaxTotal)...).Scan(&total); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, page, append(args[:len(args):len(args)], f.Limit, f.Offset)...)
			if err != nil {
				return err
			}
			list, err = pgx.CollectRows(rows, scanCall)
			return err
		})
	})
	if err != nil {
		return nil, 0, err
	}
	return list, total, nil
}

// Lapsed returns running calls whose lease ended before now, the longest lapsed first;
// with notOwner set, also those of any other owner. A running call without a lease
// never lapses. If several nodes share the store, notOwner must be empty: the other
// nodes are alive.
func (r invocations) Lapsed(ctx context.Context, now time.Time, notOwner string, limit int) ([]*toolkeep.Invocation, error) {
	return r.some(ctx, lapsedWhere, record.Nanos(now), text(notOwner), limit)
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
	var depth map[toolkeep.Priority]int
	err := r.s.read(ctx, func(ctx context.Context) error {
		depth = make(map[toolkeep.Priority]int)
		rows, err := r.s.pool.Query(ctx, `SELECT priority, count(*) FROM invocations WHERE state = 'queued' GROUP BY priority`)
		if err != nil {
			return err
		}
		var name string
		var n int
		_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
			p := toolkeep.Priority(plainText(name))
			if p == "" {
				p = toolkeep.Normal
			}
			depth[p] += n
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return depth, nil
}

// maxMarks is how many calls Marks reads at once.
const maxMarks = 1000

// Marks returns the marks of calls; unknown ones are left out. More than 1,000 are an error.
func (r invocations) Marks(ctx context.Context, calls []toolkeep.CallRef) (marks map[toolkeep.CallRef]toolkeep.CallMark, err error) {
	if len(calls) > maxMarks {
		return nil, fmt.Errorf("postgres: the marks of %d calls were asked for, at most %d are read at once", len(calls), maxMarks)
	}
	marks = map[toolkeep.CallRef]toolkeep.CallMark{}
	if len(calls) == 0 {
		return marks, nil
	}
	read := func(ctx context.Context) error {
		clear(marks)
		asked := map[*oneCall]*[2][]string{} // tenants and ids
		for _, c := range calls {
			in := r.s.callsIn(c.ID)
			if asked[in] == nil {
				asked[in] = new([2][]string)
			}
			asked[in][0], asked[in][1] = append(asked[in][0], text(c.Tenant)), append(asked[in][1], text(c.ID))
		}
		b := &pgx.Batch{}
		for in, refs := range asked {
			b.Queue(in.marks, refs[0], refs[1]).Query(func(rows pgx.Rows) error { return scanMarks(rows, marks) })
		}
		return r.s.pool.SendBatch(ctx, b).Close()
	}
	if err = r.s.read(ctx, read); r.s.dropped(err) {
		err = r.s.read(ctx, read)
	}
	if err != nil {
		return nil, err
	}
	return marks, nil
}

const sqlMarks = `SELECT tenant, id, state, cancel_by, progress
	FROM invocations JOIN unnest($1::text[], $2::text[]) AS asked (tenant, id) USING (tenant, id)`

func scanMarks(rows pgx.Rows, marks map[toolkeep.CallRef]toolkeep.CallMark) error {
	var tenant, id, state, by string
	var progress []byte
	_, err := pgx.ForEachRow(rows, []any{&tenant, &id, &state, &by, &progress}, func() error {
		p, err := record.DecodeProgress(progress)
		if err != nil {
			return damaged(fmt.Errorf("%w: progress of call %s", err, id))
		}
		marks[toolkeep.CallRef{Tenant: plainText(tenant), ID: plainText(id)}] = toolkeep.CallMark{
			State: toolkeep.CallState(state), CancelBy: plainText(by), Progress: p}
		return nil
	})
	return err
}

// CancelRequested returns the calls that have not ended, whose lease the owner has and whose
// cancelling was requested.
func (r invocations) CancelRequested(ctx context.Context, owner string) (refs []toolkeep.CallRef, err error) {
	err = r.s.read(ctx, func(ctx context.Context) error {
		rows, err := r.s.pool.Query(ctx, `SELECT tenant, id FROM invocations WHERE `+cancelWhere, text(owner))
		if err != nil {
			return err
		}
		refs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (ref toolkeep.CallRef, err error) {
			var tenant, id string
			err = row.Scan(&tenant, &id)
			return toolkeep.CallRef{Tenant: plainText(tenant), ID: plainText(id)}, err
		})
		return err
	})
	return refs, err
}
