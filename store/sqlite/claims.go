package sqlite

import (
	"context"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// maxNoted bounds the output of a call that ends in the table claims. A larger one is written to
// the table invocations at once, so that it is not written twice.
const maxNoted = 16 << 10

// note claims a call by one row of the table claims. noted is false if the call has to be claimed
// in the table invocations: what it needs is only there, or its id or key may be taken.
func (g *group) note(v *toolkeep.Invocation, data []byte) (noted bool, err error) {
	if !g.alone || v.State != toolkeep.CallRunning || waits(v) || g.w.isHeld(v) {
		return false, nil
	}
	w := g.w
	n, err := g.exec(sqlNoteClaim, w.notes+1, v.Tenant, v.ID, data, v.Subject, v.Key)
	if err != nil || n == 0 {
		return false, err
	}
	g.added++
	w.addPending(&pendingRow{callState: callState{v, data, v.Key}, claimed: true, since: time.Now(), seq: w.entry + int64(len(g.entries)), notes: w.notes})
	w.notes++
	return true, nil
}

// waits reports whether a call has what only calls have that wait for something.
func waits(v *toolkeep.Invocation) bool {
	return len(v.SealedArgs) != 0 || v.CancelBy != "" || v.Progress != (toolkeep.Progress{}) ||
		!v.Deadline.IsZero() || !v.ExpiresAt.IsZero() || !v.FetchedAt.IsZero()
}

// isHeld reports whether a pending row holds a call's key.
func (w *writer) isHeld(v *toolkeep.Invocation) bool {
	_, held := w.s.recent.keys[heldKey{v.Tenant, v.Subject, v.Key}]
	return held && v.Key != ""
}

// endNoted ends a call that is not in the table invocations yet; ended is false if that is for the table.
func (g *group) endNoted(m *move, data []byte) (ended bool, err error) {
	v := m.call
	row := g.w.s.recent.ids[v.Ref()]
	if !g.alone || row == nil || g.isIndexed(row) || !v.State.Ended() || waits(v) || len(v.Output) > maxNoted {
		return false, nil
	}
	c, key := row.call, row.key
	if m.freeKey {
		key = ""
	}
	// The data says which key the call holds.
	if c.State.Ended() || v.Subject != c.Subject || v.Key != key || !strings.Contains(m.from, ","+string(c.State)+",") ||
		m.owner != "" && c.LeaseOwner != "" && c.LeaseOwner != m.owner && c.LeaseUntil.After(g.at) {
		return false, nil
	}
	if len(v.Output) != 0 {
		if _, err := g.exec(sqlNoteOutput, g.w.notes+1, v.Tenant, v.ID, v.Output); err != nil {
			return false, err
		}
		g.w.notes++
	}
	g.ended = append(g.ended, endedRow{row, row.callState})
	row.callState = callState{v, data, v.Key}
	return true, nil
}

// endedRow is a pending row whose call ended in a group, and what it was before.
type endedRow struct {
	row *pendingRow
	was callState
}

// recoverClaims indexes the calls that the last process claimed and did not index.
func (w *writer) recoverClaims(ctx context.Context) error {
	rows, err := w.s.write.QueryContext(ctx, `SELECT seq, tenant, id, data, output FROM claims ORDER BY seq`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var claims []*pendingRow
	byRef := make(map[toolkeep.CallRef]*pendingRow)
	outputs := make(map[toolkeep.CallRef][]byte)
	for rows.Next() {
		var ref toolkeep.CallRef
		var data, output []byte
		if err := rows.Scan(&w.notes, &ref.Tenant, &ref.ID, &data, &output); err != nil {
			return err
		}
		if data == nil {
			outputs[ref] = output
			continue
		}
		v, err := record.DecodeCall(ref.Tenant, ref.ID, data)
		if err != nil {
			return err
		}
		row := &pendingRow{callState: callState{v, data, v.Key}, claimed: true, seq: w.mark, notes: w.notes - 1}
		byRef[ref], claims = row, append(claims, row)
	}
	if err := rows.Err(); err != nil || len(claims) == 0 {
		return err
	}
	if err := rows.Close(); err != nil { // the writer has one connection
		return err
	}
	for after := w.mark; ; {
		list, err := feedRows(ctx, w.s.write, entriesAfter, after, record.KindEnded, indexRows)
		if err != nil {
			return err
		}
		for _, r := range list {
			after = r.Seq
			row := byRef[toolkeep.CallRef{Tenant: r.Tenant, ID: r.Ref}]
			if row == nil {
				continue // it was claimed in the table invocations, and ended there
			}
			v, err := decodeEntry(r)
			if err != nil {
				return err
			}
			v.Output = outputs[v.Ref()]
			row.callState = callState{v, r.Data, v.Key}
		}
		if len(list) < indexRows {
			break
		}
	}
	for _, row := range claims {
		w.addPending(row)
	}
	for len(w.pending) != 0 {
		if err := w.index(ctx, indexRows); err != nil {
			return err
		}
	}
	return nil
}
