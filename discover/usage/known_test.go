package usage

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestKnown counts what Forget takes out, for one user of one tenant.
func TestKnown(t *testing.T) {
	store := newMemory(time.Now)
	u := start(t, store, "a", time.Now)
	known := func(tenant, user string) Known {
		t.Helper()
		k, err := u.Known(t.Context(), &toolkeep.Principal{Subject: "root", Tenant: tenant}, user)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	u.Retrieved(ann, aSearch("private words"))
	if k := known("t", "ann"); k.Searches != 1 || !k.Any() {
		t.Errorf("after a search that is not written yet: %+v", k)
	}
	apply(t, store, toolkeep.RecordCall{Invocation: callOf(time.Now(), "t", "ann", "s", "a.one")})
	if k := known("t", "ann"); k.Conversations != 1 || !k.Numbers {
		t.Errorf("after a call: %+v", k)
	}
	for _, who := range [][2]string{{"t", "nobody"}, {"other", "ann"}} {
		if k := known(who[0], who[1]); k.Any() {
			t.Errorf("%v: %+v", who, k)
		}
	}
	if err := u.Forget(t.Context(), &toolkeep.Principal{Subject: "root", Tenant: "t"}, "ann"); err != nil {
		t.Fatal(err)
	}
	if k := known("t", "ann"); k.Any() {
		t.Errorf("after it was forgotten: %+v", k)
	}
}
