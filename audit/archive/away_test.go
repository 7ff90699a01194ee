package archive_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/secret"
)

// vaultSealer opens nothing while it is away, as Vault's transit does.
type vaultSealer struct {
	*secret.Sealer
	away bool
}

func (s *vaultSealer) Open(sealed, context []byte) ([]byte, error) {
	if s.away {
		return nil, toolkeep.NewError(toolkeep.SecretRetrievalFailed, "Vault does not answer")
	}
	return s.Sealer.Open(sealed, context)
}

// unavailable checks that all that reads the archive is E3965.
func unavailable(t *testing.T, what string, a *audit.Audit) {
	t.Helper()
	_, _, find := a.Find(t.Context(), audit.Filter{Tenant: "t", Limit: 10, Archive: true})
	_, verify := a.Verify(t.Context(), audit.Query{Tenant: "t", Archive: true})
	_, _, list := a.Segments(t.Context(), "t", "", 10)
	for how, err := range map[string]error{"find": find, "verify": verify, "list": list} {
		if !toolkeep.IsCode(err, toolkeep.RecordUnavailable) {
			t.Errorf("%s: %s: %v", what, how, err)
		}
	}
}

// TestVaultAway: while a key cannot be opened nothing is taken for damage, and no other key is made.
func TestVaultAway(t *testing.T) {
	p := newPlace(t)
	p.event("t", "e1")
	p.sign()
	p.write(true)
	s := &vaultSealer{p.sealer, true}
	a, err := archive.New(archive.Config{Dir: p.dir, Store: p.store, Sealer: s, Clock: p.clock})
	if err != nil {
		t.Fatal(err)
	}
	audits := audit.New(audit.Config{Store: p.store, Sealer: s, Clock: p.clock, Archive: a})
	unavailable(t, "Vault is away", audits)
	p.event("t", "e2")
	if err := a.Archive(t.Context(), true); err == nil {
		t.Error("it was archived without the key")
	}
	if err := audits.Checkpoint(t.Context()); err == nil {
		t.Error("it was signed without the key")
	}
	for _, kind := range []string{archive.KeyKind, audit.KeyKind} {
		if docs, _, err := p.store.Documents(t.Context(), kind); err != nil || len(docs) != 1 {
			t.Errorf("there are %d of %s: %v", len(docs), kind, err)
		}
	}
	s.away = false
	if err := a.Archive(t.Context(), true); err != nil {
		t.Error(err)
	}
	p.has("t", "e1", "e2")
	s.away = true // a key that was opened stays
	if r, err := audits.Verify(t.Context(), audit.Query{Tenant: "t"}); !toolkeep.IsCode(err, toolkeep.RecordUnavailable) {
		t.Errorf("%+v, %v", r, err)
	}
	if list, _, err := audits.Find(t.Context(), audit.Filter{Tenant: "t", Limit: 10, Archive: true}); err != nil || len(list) != 2 {
		t.Errorf("%d entries: %v", len(list), err)
	}
}

// TestUnreadableNow: what the disk does not give is no fault of a segment.
func TestUnreadableNow(t *testing.T) {
	p := newPlace(t)
	p.event("t", "e1")
	p.sign()
	p.write(true)
	path := filepath.Join(p.dir, p.files()[1])
	if err := os.Rename(path, path+"-x"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	unavailable(t, "the disk fails", p.audit)
}

// TestLeftOut: a search says which segments it leaves out.
func TestLeftOut(t *testing.T) {
	p := newPlace(t)
	p.fill()
	files := slices.DeleteFunc(p.files(), func(f string) bool { return filepath.Base(f)[0] != 'j' || f[0] != 't' })
	if err := os.Truncate(filepath.Join(p.dir, files[2]), 100); err != nil {
		t.Fatal(err)
	}
	var left []string
	list, _, err := p.audit.Find(t.Context(), audit.Filter{Tenant: "t", Limit: 100, Archive: true, LeftOut: func(s string, _ error) { left = append(left, s) }})
	if err != nil || len(list) != 21 || !slices.Equal(left, files[2:3]) {
		t.Errorf("%d entries, left out are %q, want %q: %v", len(list), left, files[2], err)
	}
}
