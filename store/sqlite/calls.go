package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

func (g *group) claim(v *toolkeep.Invocation, data []byte) error {
	if g.w.isPending(v.Ref()) {
		return fmt.Errorf("claim %s: %w", v.ID, toolkeep.ErrIDTaken)
	}
	if noted, err := g.note(v, data); noted || err != nil {
		return err
	}
	if g.w.isHeld(v) {
		if err := g.indexUpTo(len(g.w.pending)); err != nil {
			return err
		}
	}
	args := []any{
		v.Tenant, v.ID, v.Subject, v.ToolID, v.Session, v.Parent, string(v.State), record.Nanos(v.CreatedAt),
		v.Key, string(v.Priority), record.Nanos(v.Deadline), record.Nanos(v.ExpiresAt), record.Nanos(v.FetchedAt),
		v.LeaseOwner, record.Nanos(v.LeaseUntil), v.CancelBy, v.CancelWhy,
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

// makeRoom finds out why a claim was refused. A key claimed more than Config.KeyKeep ago is
// no longer valid and is removed from its row.
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
	if created > record.Nanos(g.at.Add(-g.w.s.cfg.KeyKeep)) {
		return fmt.Errorf("claim %s: %w", v.ID, toolkeep.ErrKeyTaken)
	}
	_, err = g.exec(sqlFreeRow, row)
	return err
}

type move struct {
	call    *toolkeep.Invocation
	from    string // ",queued,running,"
	owner   string
	freeKey bool
}

func newMove(c toolkeep.MoveCall, settled *toolkeep.Invocation) *move {
	from := make([]string, len(c.From))
	for i, s := range c.From {
		from[i] = string(s)
	}
	return &move{call: settled, from: "," + strings.Join(from, ",") + ",", owner: c.Owner, freeKey: c.FreeKey}
}

func (g *group) move(m *move, data []byte) error {
	v := m.call
	if ended, err := g.endNoted(m, data); ended || err != nil {
		return err
	}
	if err := g.settle(v.Ref()); err != nil {
		return err
	}
	// Only a running call has a lease. While the call continues, another owner's lease
	// stays; a move to a state in which the call does not run, such as queueing a
	// lapsed call again, ends it.
	goesOn := v.State == toolkeep.CallRunning || v.State == toolkeep.CallInputRequired
	args := []any{
		v.Tenant, v.ID, m.from, m.owner, record.Nanos(g.at),
		v.Subject, v.ToolID, v.Session, v.Parent, record.Nanos(v.CreatedAt),
		string(v.State), string(v.Priority), record.Nanos(v.Deadline), record.Nanos(v.ExpiresAt), record.Nanos(v.FetchedAt),
		goesOn, v.LeaseOwner, record.Nanos(v.LeaseUntil), data, blobColumn(v.SealedArgs), blobColumn(v.Output),
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

// rename moves a call whose rarely changing columns differ. The usual move does not
// touch these columns, because each is in an index.
func (g *group) rename(v *toolkeep.Invocation, args []any) (int64, error) {
	if err := g.indexUpTo(len(g.w.pending)); err != nil { // the table knows all keys then
		return 0, err
	}
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

// stateOf reads a call's state within the transaction.
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

// renew extends leases that the owner has.
func (g *group) renew(c toolkeep.RenewLeases) error {
	for _, ref := range c.Calls {
		if err := g.settle(ref); err != nil {
			return err
		}
		if _, err := g.exec(sqlRenew, record.Nanos(c.Until), ref.Tenant, ref.ID, c.Owner); err != nil {
			return err
		}
	}
	return nil
}

// touch runs an update that changes nothing if the change has no meaning in the call's
// state; an unknown call is ErrNotFound.
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

// blobColumn stores an empty value as NULL.
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
	return record.AppendProgress(nil, p)
}
