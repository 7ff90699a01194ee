package secrets_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
)

// sealed is a literal value of an MCP server at rest.
func sealed(t *testing.T, s secret.Sealing, value string) string {
	t.Helper()
	raw, err := s.Seal([]byte(value), upstream.SealedValue)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

var otherKey = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))

// TestOpenSealer: keys that do not open what the store holds are refused, and no key
// file is made beside it.
func TestOpenSealer(t *testing.T) {
	h := newFixture(t)
	file := filepath.Join(h.dir, "seal.key")
	key, err := os.ReadFile(file)
	if err != nil {
		t.Fatal("no key file was made for an empty store: ", err)
	}
	open := func(change func(*secrets.SealConfig)) (*secrets.Sealer, error) {
		c := h.config()
		if change != nil {
			change(&c)
		}
		return secrets.OpenSealer(t.Context(), c)
	}
	if again, err := open(nil); err != nil || again.Keys().Newest() != h.sealer.Keys().Newest() {
		t.Fatal("a second start has other keys: ", err)
	}
	_, err = open(func(c *secrets.SealConfig) { c.Keys = otherKey })
	is(t, err, toolkeep.SecretRetrievalFailed)
	if !strings.Contains(err.Error(), "the variable TOOLKEEP_SEAL_KEY does not have the key") {
		t.Error(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err = open(nil)
	is(t, err, toolkeep.SecretRetrievalFailed)
	if !strings.Contains(err.Error(), "seal.key is not there") || !strings.Contains(err.Error(), datadir.SealLost) {
		t.Error(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("a key file was made beside a store that another key has sealed")
	}
	if _, err := open(func(c *secrets.SealConfig) { c.Keys = string(key) }); err != nil {
		t.Error("the key as text: ", err)
	}

	lost := filepath.Join(h.dir, datadir.SealLost)
	if err := os.WriteFile(lost, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh, err := open(nil)
	if err != nil || fresh.Keys().Newest() == h.sealer.Keys().Newest() {
		t.Fatal("giving the old key up: ", err)
	}
	if _, err := os.Stat(lost); err == nil {
		t.Error(lost, " is still there and would give up the next key too")
	}
	if _, err := open(nil); err != nil {
		t.Error("the start after it: ", err)
	}
}

// TestGiveUpPersons: seal.lost gives up the keys of persons that do not open, and no others, also where the check opens;
// a rotation then completes, which a key that was not given up prevents.
func TestGiveUpPersons(t *testing.T) {
	h := newFixture(t)
	other, err := secret.ParseSealer(otherKey)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]audit.Sealer{"lost": other, "here": h.sealer}
	for id, s := range ids {
		d := toolkeep.Document{Kind: audit.PersonKind, Tenant: "acme", ID: id}
		if d.Body, err = audit.SealPerson(s, bytes.Repeat([]byte{1}, audit.PersonKeyBytes), &d, false); err != nil {
			t.Fatal(err)
		}
		if err := h.store.Apply(t.Context(), toolkeep.PutDocument{Document: d, Expect: toolkeep.NoRevision, OmitBody: true}); err != nil {
			t.Fatal(err)
		}
	}
	rotate := func(failed, resealed int) {
		t.Helper()
		if done, err := h.RotateSealKey(t.Context(), access.System(), true); err != nil || done.Failed != failed || done.Resealed != resealed {
			t.Errorf("the rotation: %+v, %v", done, err)
		}
	}
	if _, err := secrets.OpenSealer(t.Context(), h.config()); err != nil {
		t.Fatal(err)
	}
	rotate(1, 1)
	lost := filepath.Join(h.dir, datadir.SealLost)
	if err := os.WriteFile(lost, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.OpenSealer(t.Context(), h.config()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(lost); err == nil {
		t.Error(lost, " is still there")
	}
	rotate(0, 1)
	for id := range ids {
		d, err := h.store.Document(t.Context(), audit.PersonKind, "acme", id)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = audit.OpenPerson(h.sealer, &d); errors.Is(err, audit.ErrPersonLost) != (id == "lost") || err != nil && id == "here" {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestOpenSealerWithoutCheck is about a store of a version that kept no check.
func TestOpenSealerWithoutCheck(t *testing.T) {
	h := newFixture(t)
	drop := func() {
		t.Helper()
		err := h.store.Apply(t.Context(), toolkeep.DeleteDocument{Kind: secret.CheckKind, ID: secret.CheckID, Expect: toolkeep.AnyRevision})
		if err != nil {
			t.Fatal(err)
		}
	}
	other := h.config()
	other.Keys = otherKey
	open := func(c secrets.SealConfig) error {
		_, err := secrets.OpenSealer(t.Context(), c)
		return err
	}
	h.put(who("bob"), "own", secrets.Where{})
	h.server("files")
	drop()
	is(t, open(other), toolkeep.SecretRetrievalFailed)
	if err := open(h.config()); err != nil {
		t.Error(err)
	}
	if h.check() == nil {
		t.Error("no check was made")
	}

	// A store that holds nothing but waiting calls needs the key file that sealed them.
	if err := h.Delete(t.Context(), who("bob"), "own", secrets.Where{}); err != nil {
		t.Fatal(err)
	}
	if err := h.store.Apply(t.Context(), toolkeep.DeleteDocument{Kind: upstream.DocumentKind, Tenant: "acme", ID: "files", Expect: toolkeep.AnyRevision}); err != nil {
		t.Fatal(err)
	}
	drop()
	h.queued = 1
	away := h.config()
	away.KeyFile = filepath.Join(t.TempDir(), "none.key")
	err := open(away)
	is(t, err, toolkeep.SecretRetrievalFailed)
	if !strings.Contains(err.Error(), "none.key is not there") {
		t.Error(err)
	}
	h.queued = 0
	if err := open(away); err != nil {
		t.Error("an empty store: ", err)
	}
}

func TestCheckSeal(t *testing.T) {
	h := newFixture(t)
	body := h.check()
	if known, err := secrets.CheckSeal(secrets.SealConfig{Data: h.dir}, body); !known || err != nil {
		t.Errorf("with the key: %v, %v", known, err)
	}
	known, err := secrets.CheckSeal(secrets.SealConfig{Data: h.dir, Keys: otherKey}, body)
	if is(t, err, toolkeep.SecretRetrievalFailed); !known {
		t.Error("another key is not known to be wrong")
	}
	empty := t.TempDir()
	known, err = secrets.CheckSeal(secrets.SealConfig{Data: empty}, body)
	if is(t, err, toolkeep.SecretRetrievalFailed); !known {
		t.Error("a missing key is not known to be wrong")
	}
	if files, _ := os.ReadDir(empty); len(files) > 0 {
		t.Error("a key file was made")
	}
	if known, err := secrets.CheckSeal(secrets.SealConfig{Data: h.dir}, []byte(`{"sealed":"Ag=="}`)); known || err != nil {
		t.Errorf("what Vault has sealed: %v, %v", known, err)
	}
	if known, err := secrets.CheckSeal(secrets.SealConfig{Data: h.dir}, []byte(`{}`)); !known || err == nil {
		t.Errorf("a body that cannot be read: %v, %v", known, err)
	}
}
