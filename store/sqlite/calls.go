package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

func prepareRecord(c toolkeep.RecordCall) (step, error) {
	v := c.Invocation
	if err := checkCall(v); err != nil {
		return step{}, err
	}
	if !v.State.Ended() {
		return step{}, fmt.Errorf("a call in state %s is not over, it must be claimed", v.State)
	}
	data, err := appendCall(make([]byte, 0, 512), v, callParts{output: true})
	kept := *v // the index reads it later, and the caller may go on with its own
	c.Invocation = &kept
	return step{change: c, kind: kindRecord, tenant: v.Tenant, ref: v.ID, data: data}, err
}

// shown is the copy of a claimed call that watchers get. Output and sealed
// arguments stay in the row alone, where they can be erased.
func shown(v *toolkeep.Invocation) *toolkeep.Invocation {
	w := *v
	w.Output, w.SealedArgs = nil, nil
	return &w
}

// settled is the copy whose row is written: an ended call has neither sealed
// arguments nor a lease.
func settled(v *toolkeep.Invocation) *toolkeep.Invocation {
	w := *v
	if w.State.Ended() {
		w.SealedArgs = nil
		w.LeaseOwner, w.LeaseUntil = "", time.Time{}
	}
	return &w
}

func prepareClaim(c toolkeep.ClaimCall) (step, error) {
	if err := checkCall(c.Invocation); err != nil {
		return step{}, err
	}
	v := settled(c.Invocation)
	data, err := appendCall(make([]byte, 0, 512), v, callParts{waiting: true})
	return step{
		change: toolkeep.ClaimCall{Invocation: shown(v)},
		kind:   kindClaim, tenant: v.Tenant, ref: v.ID, data: data,
		act: func(g *group, st *step) (bool, error) { return true, g.claim(v, st.data) },
	}, err
}

func (g *group) claim(v *toolkeep.Invocation, data []byte) error {
	if g.w.isPending(v.Ref()) {
		return fmt.Errorf("claim %s: %w", v.ID, toolkeep.ErrIDTaken)
	}
	args := []any{
		v.Tenant, v.ID, v.Subject, v.ToolID, v.Session, v.Parent, string(v.State), nanos(v.CreatedAt),
		v.Key, string(v.Priority), nanos(v.Deadline), nanos(v.ExpiresAt), nanos(v.FetchedAt),
		v.LeaseOwner, nanos(v.LeaseUntil), v.CancelBy, v.CancelWhy,
		progressColumn(v.Progress), data, blobColumn(v.SealedArgs), blobColumn(v.Output),
	}
	_, err := g.exec(sqlClaim, args...)
	if !isConstraint(err) {
		return err
	}
	if err := g.makeRoom(v); err != nil {
		return err
	}
	_, err = g.exec(sqlClaim, args...)
	return err
}

// makeRoom finds out why a claim was refused. A key that was claimed more than
// 24 hours ago holds no longer and is taken from its row.
func (g *group) makeRoom(v *toolkeep.Invocation) error {
	var one int
	err := g.queryRow(sqlHasCall, v.Tenant, v.ID).Scan(&one)
	if err == nil {
		return fmt.Errorf("claim %s: %w", v.ID, toolkeep.ErrIDTaken)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	var row, created int64
	if err := g.queryRow(sqlKeyHolder, v.Tenant, v.Subject, v.Key).Scan(&row, &created); err != nil {
		return err
	}
	if created > nanos(g.at.Add(-keyHolds)) {
		return fmt.Errorf("claim %s: %w", v.ID, toolkeep.ErrKeyTaken)
	}
	_, err = g.exec(sqlFreeRow, row)
	return err
}

func prepareMove(c toolkeep.MoveCall) (step, error) {
	if err := checkCall(c.Invocation); err != nil {
		return step{}, err
	}
	v := settled(c.Invocation)
	data, err := appendCall(make([]byte, 0, 512), v, callParts{waiting: true})
	from := make([]string, len(c.From))
	for i, s := range c.From {
		from[i] = string(s)
	}
	m := move{call: v, from: "," + strings.Join(from, ",") + ",", owner: c.Owner, freeKey: c.FreeKey}
	c.Invocation = shown(v)
	return step{
		change: c, kind: kindMove, tenant: v.Tenant, ref: v.ID,
		data: appendMove(make([]byte, 0, len(data)+32), c, data),
		act:  func(g *group, st *step) (bool, error) { return true, g.move(&m, data) },
	}, err
}

type move struct {
	call    *toolkeep.Invocation
	from    string // ",queued,running,"
	owner   string
	freeKey bool
}

func (g *group) move(m *move, data []byte) error {
	v := m.call
	if err := g.settle(v.Ref()); err != nil {
		return err
	}
	// A lease belongs to a call that somebody runs. One that another holds stays
	// as long as the call goes on; a move to a state in which nobody runs it, as
	// when a lapsed call is queued again, ends it.
	goesOn := v.State == toolkeep.CallRunning || v.State == toolkeep.CallInputRequired
	args := []any{
		v.Tenant, v.ID, m.from, m.owner, nanos(g.at),
		v.Subject, v.ToolID, v.Session, v.Parent, nanos(v.CreatedAt),
		string(v.State), string(v.Priority), nanos(v.Deadline), nanos(v.ExpiresAt), nanos(v.FetchedAt),
		goesOn, v.LeaseOwner, nanos(v.LeaseUntil), data, blobColumn(v.SealedArgs), blobColumn(v.Output),
	}
	n, err := g.exec(sqlMove, args...)
	if err == nil && n == 0 {
		n, err = g.rename(v, args)
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return g.whyStale(v)
	}
	if m.freeKey {
		_, err = g.exec(sqlFreeCall, v.Tenant, v.ID)
	}
	return err
}

// rename moves a call of which a column differs that hardly ever changes. The
// usual move leaves these columns alone, because each is in an index.
func (g *group) rename(v *toolkeep.Invocation, args []any) (int64, error) {
	n, err := g.exec(sqlRename, args[:10]...)
	if isConstraint(err) {
		return 0, fmt.Errorf("move %s to subject %s: %w", v.ID, v.Subject, toolkeep.ErrKeyTaken)
	}
	if err != nil || n == 0 {
		return 0, err
	}
	return g.exec(sqlMove, args...)
}

func (g *group) whyStale(v *toolkeep.Invocation) error {
	state, err := g.stateOf(v.Ref())
	if errors.Is(err, toolkeep.ErrNotFound) {
		return fmt.Errorf("move %s: %w: %w", v.ID, toolkeep.ErrStale, err)
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("move %s from %s: %w", v.ID, state, toolkeep.ErrStale)
}

// stateOf reads the state of a call as the transaction sees it.
func (g *group) stateOf(ref toolkeep.CallRef) (toolkeep.CallState, error) {
	if err := g.settle(ref); err != nil {
		return "", err
	}
	var state string
	err := g.queryRow(sqlState, ref.Tenant, ref.ID).Scan(&state)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("call %s: %w", ref.ID, toolkeep.ErrNotFound)
	}
	return toolkeep.CallState(state), err
}

func prepareLeases(c toolkeep.RenewLeases) (step, error) {
	if c.Owner == "" || c.Until.IsZero() {
		return step{}, errors.New("owner or time is missing")
	}
	for _, ref := range c.Calls {
		if err := checkRef(ref); err != nil {
			return step{}, err
		}
	}
	return step{change: c, kind: kindLease, ref: c.Owner, act: func(g *group, st *step) (bool, error) {
		held := make([]toolkeep.CallRef, 0, len(c.Calls))
		for _, ref := range c.Calls {
			n, err := g.exec(sqlRenew, nanos(c.Until), ref.Tenant, ref.ID, c.Owner)
			if err != nil {
				return false, err
			}
			if n != 0 {
				held = append(held, ref)
			}
		}
		// Watchers hear of what was renewed, not of what was asked.
		renewed := toolkeep.RenewLeases{Owner: c.Owner, Calls: held, Until: c.Until}
		st.change, st.data = renewed, appendLeases(nil, renewed)
		return len(held) != 0, nil
	}}, nil
}

func prepareCancel(c toolkeep.RequestCancel) (step, error) {
	if err := checkRef(c.Call); err != nil {
		return step{}, err
	}
	if c.By == "" {
		return step{}, errors.New("it does not say who asks")
	}
	return step{
		change: c, kind: kindCancel, tenant: c.Call.Tenant, ref: c.Call.ID, data: appendCancel(nil, c),
		act: func(g *group, _ *step) (bool, error) {
			return g.touch(c.Call, sqlCancel, c.By, c.Why, c.Call.Tenant, c.Call.ID)
		},
	}, nil
}

func prepareProgress(c toolkeep.ReportProgress) (step, error) {
	if err := checkRef(c.Call); err != nil {
		return step{}, err
	}
	return step{
		change: c, kind: kindProgress, tenant: c.Call.Tenant, ref: c.Call.ID,
		data: appendProgress([]byte{codecVersion}, c.Progress),
		act: func(g *group, _ *step) (bool, error) {
			return g.touch(c.Call, sqlProgress, appendProgress(nil, c.Progress), c.Call.Tenant, c.Call.ID)
		},
	}, nil
}

func prepareFetched(c toolkeep.MarkFetched, clock func() time.Time) (step, error) {
	if err := checkRef(c.Call); err != nil {
		return step{}, err
	}
	if c.At.IsZero() {
		c.At = clock()
	}
	return step{
		change: c, kind: kindFetched, tenant: c.Call.Tenant, ref: c.Call.ID,
		data: appendTime([]byte{codecVersion}, c.At),
		act: func(g *group, _ *step) (bool, error) {
			return g.touch(c.Call, sqlFetched, nanos(c.At), c.Call.Tenant, c.Call.ID)
		},
	}, nil
}

// touch runs an update that changes nothing where the call is in a state for
// which the change has no meaning; an unknown call is ErrNotFound.
func (g *group) touch(ref toolkeep.CallRef, id int, args ...any) (bool, error) {
	if err := g.settle(ref); err != nil {
		return false, err
	}
	n, err := g.exec(id, args...)
	if err != nil || n != 0 {
		return n != 0, err
	}
	_, err = g.stateOf(ref)
	return false, err
}

func (s *Store) prepareEnqueue(c toolkeep.Enqueue) (step, error) {
	if err := checkRef(c.Call); err != nil {
		return step{}, err
	}
	if s.cfg.Enqueue == nil {
		return step{}, errors.New("the store was opened without a queue")
	}
	return step{foreign: true, act: func(g *group, _ *step) (bool, error) {
		return false, g.enqueue(context.WithoutCancel(g.current.ctx), c)
	}}, nil
}

// enqueue calls the queue. A panic there must not end the writer.
func (g *group) enqueue(ctx context.Context, c toolkeep.Enqueue) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("sqlite: the queue panicked: %v", p)
		}
	}()
	if err := g.w.s.cfg.Enqueue(ctx, g.tx, c); err != nil {
		return fmt.Errorf("enqueue %s: %w", c.Call.ID, err)
	}
	return nil
}

// nanos is how times stand in columns: nanoseconds since 1970, 0 for none, and
// the farthest there is for what lies beyond the year 2262.
func nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Year() > 2261:
		return math.MaxInt64
	case t.Year() < 1678:
		return math.MinInt64
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// blobColumn keeps nothing apart from an empty value.
func blobColumn(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

func progressColumn(p toolkeep.Progress) any {
	if p == (toolkeep.Progress{}) {
		return nil
	}
	return appendProgress(nil, p)
}
