package erasure_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/erasure"
)

// part stands for the records and the search of a server, each of which can fail.
type part struct {
	done   []string
	failed error // of Destroy
	forgot func()
	holds  []toolkeep.Document
}

func (r *part) Digest(context.Context, string, string) (string, error) { return "digest", nil }

// Has: a person has a key from the start, or since search forgot the person, whose event is sealed.
func (r *part) Has(_ context.Context, _, person string) (bool, error) {
	return person != "a stranger" || slices.Contains(r.done, "forgot "+person), nil
}

func (r *part) Destroy(_ context.Context, tenant, person, by string, with ...toolkeep.Change) (bool, error) {
	if r.failed != nil {
		return false, r.failed
	}
	for _, c := range with {
		e := c.(toolkeep.AppendEvent).Event
		r.done = append(r.done, e.Type+" "+string(e.Data))
	}
	r.done = append(r.done, "destroyed "+person)
	return true, nil
}

// TestErase: who may not, or under a legal hold, changes nothing; what failed is done by the repetition, with one event.
func TestErase(t *testing.T) {
	r := &part{}
	x := erasure.New(erasure.Config{Records: r,
		Forget: func(_ context.Context, _ *toolkeep.Principal, person string) error {
			r.done = append(r.done, "forgot "+person)
			if r.forgot != nil {
				r.forgot()
			}
			return nil
		},
		Documents: func(context.Context, string) ([]toolkeep.Document, int64, error) { return r.holds, 0, nil }})
	root := &toolkeep.Principal{Tenant: "t", Subject: "root", Permissions: []string{toolkeep.PermErase}}
	refused := func(p *toolkeep.Principal, person string, want toolkeep.Code) {
		t.Helper()
		_, err := x.Erase(t.Context(), p, person)
		if e := toolkeep.AsError(err); err == nil || e.Code != want {
			t.Errorf("it is %v, want %s", err, want)
		}
	}
	refused(&toolkeep.Principal{Tenant: "t", Subject: "guest"}, "ann", toolkeep.PermissionDenied)
	refused(root, "", toolkeep.InvalidParameters)
	r.holds = []toolkeep.Document{{Kind: toolkeep.LegalHoldKind, Tenant: "other", ID: "h0"}, {Kind: toolkeep.LegalHoldKind, Tenant: "t", ID: "h1"}}
	refused(root, "ann", toolkeep.StateConflict)
	if len(r.done) > 0 {
		t.Errorf("what was refused did %q", r.done)
	}
	r.holds = r.holds[:1]
	r.forgot = func() {
		r.holds = append(r.holds, toolkeep.Document{Kind: toolkeep.LegalHoldKind, Tenant: "t", ID: "h2"})
	}
	refused(root, "ann", toolkeep.StateConflict) // a hold that is made meanwhile
	if !slices.Equal(r.done, []string{"forgot ann"}) {
		t.Errorf("under a hold that was made meanwhile it did %q", r.done)
	}
	r.forgot, r.done, r.holds = nil, nil, r.holds[:1]
	r.failed = errors.New("away")
	refused(root, "ann", toolkeep.RecordUnavailable)
	r.failed = nil
	done, err := x.Erase(t.Context(), root, "ann")
	if err != nil || !done.HadKey || done.Digest != "digest" {
		t.Error(done, err)
	}
	if done, err := x.Erase(t.Context(), root, "a stranger"); err != nil || done.HadKey {
		t.Error("a person who has no key: ", done, err)
	}
	r.done = r.done[:4]
	want := []string{"forgot ann", "forgot ann", `ai.agent.audit.erased {"agent_did":"root","person_digest":"digest","tenant_id":"t"}`, "destroyed ann"}
	if !slices.Equal(r.done, want) {
		t.Errorf("it did %q", r.done)
	}
}
