package audit

import (
	"context"
	"encoding/json"

	"github.com/toolkeep/toolkeep"
)

// HeadNumbers returns the numbers of the oldest and the newest checkpoint that a document of HeadKind lists, whoever
// signed it. ok is false if it cannot be read.
func HeadNumbers(d toolkeep.Document) (first, newest int64, ok bool) {
	var s signed
	var h head
	if json.Unmarshal(d.Body, &s) != nil || json.Unmarshal(s.Statement, &h) != nil {
		return 0, 0, false
	}
	return h.First, h.Number, true
}

// CheckpointEnds returns for each writer the number of the last entry that a document of CheckpointKind signs, whoever
// signed it. It is empty for one that cannot be read.
func CheckpointEnds(d toolkeep.Document) toolkeep.JournalPosition {
	var s signed
	var st statement
	if json.Unmarshal(d.Body, &s) != nil || json.Unmarshal(s.Statement, &st) != nil {
		return nil
	}
	ends := make(toolkeep.JournalPosition, len(st.Chains))
	for i := range st.Chains {
		ends[st.Chains[i].Writer] = st.Chains[i].To.Seq
	}
	return ends
}

// keeps reports whether a checkpoint past its time stays, since the archive does not have it yet.
func (a *Audit) keeps(ctx context.Context, d toolkeep.Document, number int64) (bool, error) {
	if a.c.Archived == nil || d.UpdatedAt.Before(a.c.Store.KeepsFrom().Add(-a.c.ArchiveWait)) {
		return false, nil
	}
	newest, err := a.c.Archived(ctx, d.Tenant)
	return number > newest, err
}
