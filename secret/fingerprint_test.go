package secret

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestMark: another value has another mark, and a missing value has none.
func TestMark(t *testing.T) {
	b := newBench(t)
	vars := map[string]string{"TOOLKEEP_SECRET_A": "one"}
	dir := t.TempDir()
	r, err := New(Config{Stores: []Store{b.local, blindStore{}}, LookupEnv: env(vars), Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	boss := who("acme", "boss", "may="+toolkeep.PermSecretsAdmin)
	ann, bob := who("acme", "ann", "workspace=w"), who("acme", "bob")
	mark := func(p *toolkeep.Principal, ref string) [32]byte {
		t.Helper()
		m, ok := r.Fingerprint(t.Context(), p, ref)
		if !ok || m.Blind {
			t.Fatalf("%s has no mark: %+v", ref, m)
		}
		return m.Sum
	}
	none := func(p *toolkeep.Principal, ref string) {
		t.Helper()
		if m, ok := r.Fingerprint(t.Context(), p, ref); ok {
			t.Errorf("%s has the mark %+v", ref, m)
		}
	}
	seen := map[[32]byte]bool{}
	fresh := func(p *toolkeep.Principal, ref string) {
		t.Helper()
		m := mark(p, ref)
		if seen[m] {
			t.Errorf("%s has a mark that was there before", ref)
		}
		seen[m] = true
	}
	none(ann, "secret://k")
	none(ann, "secret://UPPER")
	b.set(t, boss, Organisation, "", "k", "org")
	fresh(ann, "secret://k")
	if mark(ann, "secret://k") != mark(bob, "secret://k") {
		t.Error("the organisation's differs by person")
	}
	none(who("globex", "ann"), "secret://k")
	b.set(t, boss, Workspace, "w", "k", "workspace")
	fresh(ann, "secret://k")
	b.set(t, ann, User, "", "k", "ann's")
	b.set(t, bob, User, "", "k", "bob's")
	fresh(ann, "secret://k")
	fresh(bob, "secret://k")
	if err := b.local.Delete(t.Context(), bob, Where{Name: "k"}); err != nil {
		t.Fatal(err)
	}
	b.set(t, bob, User, "", "k", "bob's")
	fresh(bob, "secret://k") // at the same instant, and version 1 again
	if _, err := b.local.Set(t.Context(), bob, Put{Where: Where{Name: "k"}, Value: []byte("short-lived"), Expires: b.now.Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	fresh(bob, "secret://k")
	b.now = b.now.Add(time.Minute)
	none(bob, "secret://k")

	fresh(bob, "env://TOOLKEEP_SECRET_A")
	vars["TOOLKEEP_SECRET_A"] = "two"
	fresh(bob, "env://TOOLKEEP_SECRET_A")
	none(bob, "env://TOOLKEEP_SECRET_B")
	none(bob, "env://PATH")

	file := filepath.Join(dir, "acme", "k")
	none(bob, "file://"+file)
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(v), 0o600); err != nil {
			t.Fatal(err)
		}
		fresh(bob, "file://"+file)
	}
	none(who("globex", "bob"), "file://"+file)
	none(bob, "")
	none(bob, "other://x")

	of := func(p *toolkeep.Principal) Fingerprint {
		m, ok := r.Fingerprint(t.Context(), p, "blind://x")
		if !ok || !m.Blind {
			t.Errorf("a store that cannot tell: %+v %v", m, ok)
		}
		return m
	}
	if first := of(ann); first == of(bob) || first != of(ann) {
		t.Error("marks of a store that cannot tell are each principal's own")
	}
}

// blindStore cannot tell its values apart.
type blindStore struct{ Store }

func (blindStore) Scheme() string { return "blind" }

// TestCheck: only the keys that sealed the check open it.
func TestCheck(t *testing.T) {
	b := newBench(t)
	it, err := NewCheck(b.sealer)
	if err != nil {
		t.Fatal(err)
	}
	if err := OpenCheck(b.sealer, it.Body); err != nil {
		t.Error(err)
	}
	if _, err := b.sealer.AddKey(); err != nil {
		t.Fatal(err)
	}
	if err := OpenCheck(b.sealer, it.Body); err != nil {
		t.Errorf("with a new key before it: %v", err)
	}
	other, err := NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	if err := OpenCheck(other, it.Body); codeOf(err) != toolkeep.InternalError {
		t.Errorf("another key: %v", err)
	}
	for _, body := range []string{"", "{}", `{"sealed":"AQ=="}`, "x"} {
		if OpenCheck(b.sealer, []byte(body)) == nil {
			t.Errorf("%q was opened", body)
		}
	}
}
