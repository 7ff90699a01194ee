package archive

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/datadir"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

func document(tenant, id string, body any, expect int64) (toolkeep.Change, error) {
	raw, err := json.Marshal(body)
	return toolkeep.PutDocument{OmitBody: true, Expect: expect,
		Document: toolkeep.Document{Kind: StateKind, Tenant: tenant, ID: id, Body: raw, UpdatedBy: author}}, err
}

// Archived returns what the archive has had of a tenant's checkpoints; see audit.Archive.
func (a *Archive) Archived(ctx context.Context, tenant string) (audit.Archived, error) {
	n, _, err := a.archived(ctx, tenant)
	return n, err
}

// archived reads the document newestID of a tenant.
func (a *Archive) archived(ctx context.Context, tenant string) (n audit.Archived, revision int64, err error) {
	d, err := a.c.Store.Document(ctx, StateKind, tenant, newestID)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return n, toolkeep.NoRevision, nil
	}
	if err != nil {
		return n, 0, err
	}
	return n, d.Revision, json.Unmarshal(d.Body, &n)
}

// checkpoints archives the checkpoints whose entries are archived.
func (a *Archive) checkpoints(ctx context.Context, at map[int64]toolkeep.Cursor, all bool) error {
	heads, _, err := a.c.Store.Documents(ctx, audit.HeadKind)
	if err != nil {
		return err
	}
	// These checkpoints sign nothing that comes after this. A writer that is not in the list is archived, or is gone.
	writers, err := a.c.Store.ChainWriters(ctx, positions(at))
	if err != nil {
		return err
	}
	waits := toolkeep.JournalPosition{} // how far those writers are that are not done
	for _, w := range writers {
		waits[w.ID] = at[w.ID].Seq
	}
	for _, head := range heads {
		if first, last, ok := audit.HeadNumbers(head); ok {
			if err := a.checkpointsOf(ctx, head.Tenant, first, last, waits, all); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkpointsOf archives a tenant's checkpoints up to one number.
func (a *Archive) checkpointsOf(ctx context.Context, tenant string, first, last int64, waits toolkeep.JournalPosition, all bool) error {
	n, revision, err := a.archived(ctx, tenant)
	if err != nil {
		return err
	}
	var parts []*Segment
	size := 0
	next := max(n.Newest+1, first)
	for ; next <= last && size < maxBytes; next++ {
		d, err := a.c.Store.Document(ctx, audit.CheckpointKind, tenant, strconv.FormatInt(next, 10))
		if errors.Is(err, toolkeep.ErrNotFound) { // verify tells of it
			continue
		}
		if err != nil {
			return err
		}
		written := d.UpdatedAt.UTC()
		if len(parts) == 0 && !all && a.c.Clock().Sub(written) < a.c.After {
			return nil
		}
		ends := audit.CheckpointEnds(d)
		if uncovered(ends, waits) {
			break
		}
		n.Add(next, written, ends)
		day := written.Format(dayForm)
		if len(parts) == 0 || day > parts[len(parts)-1].Day {
			parts = append(parts, &Segment{Header: Header{Kind: Checkpoints, Tenant: tenant, Day: day}})
		}
		parts[len(parts)-1].add(toolkeep.Link{Seq: next, At: written.UnixMicro(), Tenant: tenant, Data: d.Body}, written)
		size += len(d.Body)
	}
	if len(parts) == 0 {
		return nil
	}
	if err := a.write(ctx, parts); err != nil {
		return err
	}
	n.Newest = next - 1
	put, err := document(tenant, newestID, n, revision)
	if err != nil {
		return err
	}
	if err := a.c.Store.Apply(ctx, put); err != nil {
		return err
	}
	a.c.Hook("moved")
	return nil
}

// uncovered reports whether a checkpoint signs an entry that is not archived.
func uncovered(ends, waits toolkeep.JournalPosition) bool {
	for id, seq := range ends {
		if at, ok := waits[id]; ok && seq > at {
			return true
		}
	}
	return false
}

// expireEvery is how often old segments are looked for.
const expireEvery = time.Hour

// heldAround is how much earlier and later than a hold's time days are held with it: an entry can be older than the first of
// its segment, and the checkpoint that signs it comes later.
const heldAround = 24 * time.Hour

// held returns the legal holds by the folder of their tenant.
func (a *Archive) held(ctx context.Context) (map[string][]toolkeep.LegalHold, error) {
	documents, _, err := a.c.Store.Documents(ctx, toolkeep.LegalHoldKind)
	holds := make(map[string][]toolkeep.LegalHold, len(documents))
	for _, d := range documents {
		h := toolkeep.ReadLegalHold(d)
		folder := datadir.TenantFolder(h.Tenant)
		holds[folder] = append(holds[folder], h)
	}
	return holds, err
}

// covers reports whether one of the holds covers a part of a day.
func covers(holds []toolkeep.LegalHold, day string) bool {
	start, _ := time.Parse(dayForm, day) // it is the name of a folder of that form
	return slices.ContainsFunc(holds, func(h toolkeep.LegalHold) bool {
		return h.Covers(start.Add(-heldAround), start.Add(24*time.Hour+heldAround))
	})
}

// expire removes the segments of days that ended before what is kept, and that no legal hold covers.
func (a *Archive) expire(ctx context.Context) error {
	now := a.c.Clock().UTC()
	a.mu.Lock()
	due := now.Sub(a.expired) >= expireEvery
	a.mu.Unlock()
	if !due {
		return nil
	}
	before := now.Add(-a.c.Keep).Add(-24 * time.Hour).Format(dayForm)
	holds, err := a.held(ctx)
	if err != nil {
		return err
	}
	tenants, err := a.folder.tenants()
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		days, err := a.folder.days(tenant)
		if err != nil {
			return err
		}
		for i, day := range days {
			if err := ctx.Err(); err != nil {
				return err
			}
			if day < before && covers(holds[tenant], day) {
				continue
			}
			if day < before {
				err = a.remove(tenant, day)
			} else if i == len(days)-1 || day >= now.Add(-48*time.Hour).Format(dayForm) {
				err = a.folder.removeStale(tenant, day, time.Now())
			}
			if err != nil {
				return err
			}
		}
	}
	a.mu.Lock()
	a.expired = now
	a.mu.Unlock()
	return nil
}
