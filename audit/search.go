package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// MaxPage is the most entries of one page.
const MaxPage = 200

// Bounds of one search: what it looks at, whatever it finds.
const (
	searchRows = 5000
	searchPart = 200
)

// Filter selects entries. Zero fields do not filter.
type Filter struct {
	Tenant   string // required
	Since    time.Time
	Until    time.Time
	Agent    string
	Tool     string
	Type     string // whole, or the end after ai.agent.tool. or ai.agent.
	Decision string
	ID       string
	Before   string // cursor
	Archive  bool   // in the archive, and not in the store
	Limit    int    // 1 to MaxPage
	// LeftOut is told of each segment of the archive that is left out, since it has a fault; Verify says more of it.
	LeftOut func(segment string, err error)
}

func (f *Filter) fits(e *Entry) bool {
	switch {
	case f.ID != "" && e.ID != f.ID,
		f.Agent != "" && e.agent() != f.Agent,
		f.Tool != "" && e.who.Tool != f.Tool,
		f.Decision != "" && e.Decision() != f.Decision:
		return false
	case f.Type == "" || e.Type == f.Type:
		return true
	}
	return strings.TrimPrefix(strings.TrimPrefix(e.Type, "ai.agent."), "tool.") == f.Type
}

// Find returns a page of a tenant's entries, newest first, and the cursor of the next one, "" at the end. It looks at
// 5,000 entries at most, so that a page may have fewer than Limit, or none, and go on.
//
// Errors: E3301 a limit or a cursor that is none, or there is no archive; E3965 the store or the archive cannot be read.
func (a *Audit) Find(ctx context.Context, f Filter) (list []*Entry, next string, err error) {
	if f.Limit < 1 || f.Limit > MaxPage {
		return nil, "", toolkeep.NewError(toolkeep.InvalidParameters, "a page has 1 to %d entries", MaxPage)
	}
	src, err := a.newest(&f)
	if err != nil {
		return nil, "", err
	}
	next = f.Before
	for looked := 0; looked < searchRows && len(list) < f.Limit; {
		links, cursors, after, err := src.Newest(ctx, toolkeep.NewestQuery{Tenant: f.Tenant, Since: f.Since, Until: f.Until, Before: next, Limit: searchPart})
		if errors.Is(err, toolkeep.ErrNotFound) {
			return nil, "", errCursor()
		}
		if err != nil && f.Archive {
			return nil, "", unreadable(err)
		}
		if err != nil {
			return nil, "", toolkeep.NewError(toolkeep.RecordUnavailable, "the journal cannot be read now").Because(err)
		}
		next = after
		looked += searchPart
		for i := range links {
			e, err := a.c.Store.Entry(links[i])
			if errors.Is(err, toolkeep.ErrKeyAway) {
				return nil, "", toolkeep.NewError(toolkeep.RecordUnavailable, "the journal cannot be read now").Because(err)
			}
			if err != nil || e == nil { // verify tells of it
				continue
			}
			entry, err := NewEntry(&links[i], e)
			if err != nil {
				return nil, "", err
			}
			if f.fits(entry) {
				if list = append(list, entry); len(list) == f.Limit {
					next = cursors[i]
					break
				}
			}
		}
		if next == "" {
			break
		}
	}
	return list, next, nil
}

// newest returns what is searched.
func (a *Audit) newest(f *Filter) (src interface {
	Newest(ctx context.Context, q toolkeep.NewestQuery) (list []toolkeep.Link, cursors []string, next string, err error)
}, err error) {
	if !f.Archive {
		return a.c.Store, nil
	}
	if a.c.Archive == nil {
		return nil, errNoArchive()
	}
	left := f.LeftOut
	if left == nil {
		left = func(string, error) {}
	}
	r, err := a.c.Archive.Read(f.Tenant, f.Since, left)
	if err != nil {
		return nil, unreadable(err)
	}
	return r, nil
}
