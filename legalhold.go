package toolkeep

import (
	"encoding/json"
	"time"
)

// LegalHoldKind is the kind of the documents with legal holds, each the tenant's; the id is that of the hold.
const LegalHoldKind = "audit_hold"

// MaxLegalHolds is the most legal holds of an installation: retention compares with each.
const MaxLegalHolds = 100

// MaxTenantHolds is the most of them of one tenant.
const MaxTenantHolds = 20

// LegalHoldReach is how long a call may take, at most, from when it was made until it ended, for retention: a hold covers
// entries by when they were recorded, and retention removes calls by when they were made.
const LegalHoldReach = 31 * 24 * time.Hour

// LegalHold is a legal hold: while it stands, retention removes nothing that it covers. Retention goes by tenant and time
// alone, so it keeps the entries of other agents and tools of that time too.
type LegalHold struct {
	ID     string    `json:"id"`
	Tenant string    `json:"-"`
	From   time.Time `json:"from"`           // the time of the first entries that are covered
	Until  time.Time `json:"until,omitzero"` // not included; zero: for as long as the hold stands
	Agent  string    `json:"agent_did,omitempty"`
	Tool   string    `json:"tool_id,omitempty"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// ReadLegalHold reads a document of LegalHoldKind. One that cannot be read holds everything of its tenant.
func ReadLegalHold(d Document) LegalHold {
	var h LegalHold
	if json.Unmarshal(d.Body, &h) != nil {
		h = LegalHold{Reason: "the hold's document cannot be read"}
	}
	h.ID, h.Tenant = d.ID, d.Tenant
	return h
}

// Covers reports whether a hold covers a time between two, the second not included.
func (h *LegalHold) Covers(from, until time.Time) bool {
	return h.From.Before(until) && (h.Until.IsZero() || h.Until.After(from))
}
