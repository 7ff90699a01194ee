package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// claimTries bounds how often a claim looks up its conflict again while others release
// and take the same key.
const claimTries = 5

func (g *group) claim(ctx context.Context, v *toolkeep.Invocation, data []byte) error {
	query, args := g.claimOf(v, data)
	for range claimTries {
		n, err := g.exec(ctx, query, args...)
		if g.apart && code(err) == uniqueViolation { // outside a savepoint the group is tried again
			return fmt.Errorf("claim %s: %w", v.ID, toolkeep.ErrIDTaken)
		}
		if err != nil || n != 0 {
			return err
		}
		if err := g.makeRoom(ctx, v); err != nil {
			return err
		}
	}
	return fmt.Errorf("claim %s: others take and free the key all the time: %w", v.ID, toolkeep.ErrKeyTaken)
}

// claimOf returns the statement of a claim. It changes no row if the id or the key is taken.
func (g *group) claimOf(v *toolkeep.Invocation, data []byte) (query string, args []any) {
	in := g.on(v.Ref())
	query, args = in.claim, []any{
		text(v.Tenant), text(v.ID), text(v.Subject), text(v.ToolID), text(v.Session), text(v.Parent), string(v.State),
		record.Nanos(v.CreatedAt), text(string(v.Priority)), record.Nanos(v.Deadline), record.Nanos(v.ExpiresAt),
		record.Nanos(v.FetchedAt), text(v.LeaseOwner), record.Nanos(v.LeaseUntil), text(v.CancelBy), text(v.CancelWhy),
		progressColumn(v.Progress), data, blobColumn(v.SealedArgs), blobColumn(v.Output),
	}
	if v.Key != "" {
		query, args = in.claimKey, append(args, text(v.Key))
	}
	return query, args
}

// makeRoom finds out why a claim was refused. A key claimed more than Config.KeyKeep ago is
// no longer valid and is removed, as is one whose call is gone.
func (g *group) makeRoom(ctx context.Context, v *toolkeep.Invocation) error {
	var one int
	err := g.tx.QueryRow(ctx, g.on(v.Ref()).has, text(v.Tenant), text(v.ID)).Scan(&one)
	if err == nil {
		return fmt.Errorf("claim %s: %w", v.ID, toolkeep.ErrIDTaken)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	var holder string
	var created int64
	err = g.tx.QueryRow(ctx, sqlKeyHolder, text(v.Tenant), text(v.Subject), text(v.Key)).Scan(&holder, &created)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // released meanwhile
	}
	if err != nil {
		return err
	}
	if created > record.Nanos(g.at.Add(-g.w.s.cfg.KeyKeep)) {
		// The row of the holder was written with the key.
		of := toolkeep.CallRef{Tenant: v.Tenant, ID: plainText(holder)}
		err := g.tx.QueryRow(ctx, g.on(of).has, text(v.Tenant), holder).Scan(&one)
		if err == nil {
			return fmt.Errorf("claim %s: %w", v.ID, toolkeep.ErrKeyTaken)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	_, err = g.exec(ctx, sqlFreeKey, text(v.Tenant), text(v.Subject), text(v.Key), holder)
	return err
}

func (g *group) move(ctx context.Context, c toolkeep.MoveCall, st *step) error {
	v, args := st.Call, g.moveArgs(c, st)
	n, err := g.exec(ctx, g.on(v.Ref()).move, args...)
	if err == nil && n == 0 {
		n, err = g.rename(ctx, v, args)
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return g.whyStale(ctx, v)
	}
	if c.FreeKey && v.Key != "" {
		_, err = g.exec(ctx, sqlFreeKey, text(v.Tenant), text(v.Subject), text(v.Key), text(v.ID))
	}
	return err
}

func (g *group) moveArgs(c toolkeep.MoveCall, st *step) []any {
	v := st.Call
	var writer, entry *int64
	var hash []byte
	if st.InJournal() {
		writer, entry, hash = &st.Entry.Writer, &st.Entry.Seq, st.Hash[:]
	}
	from := make([]string, len(c.From))
	for i, s := range c.From {
		from[i] = text(string(s))
	}
	// Only a running call has a lease. While the call continues, another owner's lease
	// stays; a move to a state in which the call does not run, such as queueing a
	// lapsed call again, ends it.
	goesOn := v.State == toolkeep.CallRunning || v.State == toolkeep.CallInputRequired
	return []any{
		text(v.Tenant), text(v.ID), from, text(c.Owner), record.Nanos(g.at),
		text(v.Subject), text(v.ToolID), text(v.Session), text(v.Parent), record.Nanos(v.CreatedAt),
		string(v.State), text(string(v.Priority)), record.Nanos(v.Deadline), record.Nanos(v.ExpiresAt), record.Nanos(v.FetchedAt),
		goesOn, text(v.LeaseOwner), record.Nanos(v.LeaseUntil), st.CallData, blobColumn(v.SealedArgs), blobColumn(v.Output),
		writer, entry, hash,
	}
}

// rename moves a call whose rarely changing columns differ, and the key that it holds. The usual
// move does not touch these columns, because each is in an index.
func (g *group) rename(ctx context.Context, v *toolkeep.Invocation, args []any) (n int64, err error) {
	// The new subject may already hold the key; the conflict would abort the
	// transaction.
	err = pgx.BeginFunc(ctx, g.tx, func(inner pgx.Tx) error {
		var was string
		err := inner.QueryRow(ctx, g.on(v.Ref()).subject, args[:2]...).Scan(&was)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		tag, err := inner.Exec(ctx, g.on(v.Ref()).rename, args[:10]...)
		if n = tag.RowsAffected(); err != nil || n == 0 || v.Key == "" {
			return err
		}
		_, err = inner.Exec(ctx, sqlMoveKey, text(v.Subject), record.Nanos(v.CreatedAt), text(v.Tenant), was, text(v.Key), text(v.ID))
		return err
	})
	if code(err) == uniqueViolation {
		return 0, fmt.Errorf("move %s to subject %s: %w", v.ID, v.Subject, toolkeep.ErrKeyTaken)
	}
	if err != nil || n == 0 {
		return 0, err
	}
	return g.exec(ctx, g.on(v.Ref()).move, args...)
}

func (g *group) whyStale(ctx context.Context, v *toolkeep.Invocation) error {
	state, err := g.stateOf(ctx, v.Ref())
	if errors.Is(err, toolkeep.ErrNotFound) {
		return fmt.Errorf("move %s: %w: %w", v.ID, toolkeep.ErrStale, err)
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("move %s from %s: %w", v.ID, state, toolkeep.ErrStale)
}

// stateOf reads a call's state within the transaction.
func (g *group) stateOf(ctx context.Context, ref toolkeep.CallRef) (toolkeep.CallState, error) {
	var state string
	err := g.tx.QueryRow(ctx, g.on(ref).state, text(ref.Tenant), text(ref.ID)).Scan(&state)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("call %s: %w", ref.ID, toolkeep.ErrNotFound)
	}
	return toolkeep.CallState(state), err
}

// renew extends leases that the owner has, and reports whether there is one.
func (g *group) renew(ctx context.Context, c toolkeep.RenewLeases) (changed bool, err error) {
	b := &pgx.Batch{}
	for _, ref := range c.Calls {
		b.Queue(g.on(ref).renew, record.Nanos(c.Until), text(ref.Tenant), text(ref.ID), text(c.Owner)).Exec(func(tag pgconn.CommandTag) error {
			changed = changed || tag.RowsAffected() != 0
			return nil
		})
	}
	return changed, g.tx.SendBatch(ctx, b).Close()
}

// touch runs an update that changes nothing if the change has no meaning in the call's
// state; an unknown call is ErrNotFound. The call's tenant and id are appended to args.
func (g *group) touch(ctx context.Context, ref toolkeep.CallRef, query string, args ...any) (bool, error) {
	n, err := g.exec(ctx, query, append(args, text(ref.Tenant), text(ref.ID))...)
	if err != nil || n != 0 {
		return n != 0, err
	}
	_, err = g.stateOf(ctx, ref)
	return false, err
}

// blobColumn stores an empty value as NULL.
func blobColumn(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

func progressColumn(p toolkeep.Progress) []byte {
	if p == (toolkeep.Progress{}) {
		return nil
	}
	return record.AppendProgress(nil, p)
}
