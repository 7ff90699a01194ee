package capability

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestRevocationOutlivesWaitingCalls: a revocation is dropped neither before the last token of its
// name has expired nor before the last call that one admitted has ended.
func TestRevocationOutlivesWaitingCalls(t *testing.T) {
	for name, c := range map[string]struct{ life, wait, kept time.Duration }{
		"calls wait longer":  {5 * time.Minute, time.Hour, time.Hour},
		"tokens live longer": {time.Hour, 5 * time.Minute, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			clk, s := newClock(), newStore()
			v := newTokens(t, Config{Life: c.life, Wait: c.wait}, s, clk)
			revoke := func(id string) {
				changes := must[[]toolkeep.Change](t)(v.Revoke("acme", id, "admin"))
				if err := s.Apply(t.Context(), changes...); err != nil {
					t.Fatal(err)
				}
				for _, c := range changes {
					v.Follow(toolkeep.Committed{Change: c})
				}
			}
			grant := &toolkeep.Grant{Tenant: "acme", ID: "of a waiting call"}
			revoke(grant.ID)
			clk.Add(c.kept + time.Minute) // with the skew of the clocks of two nodes
			revoke("another")
			if v.Revoked(grant) == nil {
				t.Error("the revocation was dropped too early")
			}
			clk.Add(time.Second)
			revoke("a third")
			if v.Revoked(grant) != nil {
				t.Error("the revocation is kept for ever")
			}
		})
	}
}
