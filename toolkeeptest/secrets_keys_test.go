package toolkeeptest_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// refusedStart starts a node on the directory, which must be refused because of its
// keys, and returns the message.
func refusedStart(t *testing.T, dir string, environ ...string) string {
	t.Helper()
	c, err := config.Load(config.Sources{Flags: map[string]string{"data": dir}, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.New(context.Background(), c, node.Options{LogTo: io.Discard})
	if err == nil {
		_ = n.Stop(context.Background())
		t.Fatal("the start was not refused")
	}
	e := toolkeep.AsError(err)
	if e.Code != toolkeep.SecretRetrievalFailed || !strings.Contains(e.Message, "seal.lost") {
		t.Fatalf("the start gave %v", err)
	}
	return e.Message
}

// TestSecretKeyLost: without the key that sealed the store, no start creates another
// one until the operator declares the key lost.
func TestSecretKeyLost(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	dir := filepath.Join(t.TempDir(), "data")
	file, away := filepath.Join(dir, "seal.key"), filepath.Join(t.TempDir(), "away")
	k := toolkeeptest.Open(t, dir)
	k.Publish(up.tool(t, "shop.read", "secret://shop", nil))
	root := admin(t, k)
	root.secret("shop", "value-under-the-key", `"scope":"organisation"`)
	if a := root.do("PUT", "/api/v1/context/agent/bob/tool/shop.read", `{"session_context":{"project":"p"}}`); a.status >= 300 {
		t.Fatal(a)
	}
	k.Close()
	again := func(o ...toolkeeptest.Option) *client {
		t.Helper()
		k = toolkeeptest.Open(t, dir, o...)
		k.AdminKey = strings.TrimSpace(readText(t, filepath.Join(dir, "admin.key")))
		return admin(t, k)
	}
	if err := os.Rename(file, away); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if m := refusedStart(t, dir); !strings.Contains(m, "seal.key is not there") {
			t.Error(m)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatal("a key file was made")
		}
	}
	other := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	if m := refusedStart(t, dir, "TOOLKEEP_SEAL_KEY="+other); !strings.Contains(m, "the variable TOOLKEEP_SEAL_KEY does not have the key") {
		t.Error(m)
	}
	if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if m := refusedStart(t, dir); !strings.Contains(m, "seal.key does not have the key") {
		t.Error(m)
	}
	if err := os.Rename(away, file); err != nil {
		t.Fatal(err)
	}
	if a := again().call("shop.read", `{"mode":"x"}`); !a.succeeded() || up.keys() != "value-under-the-key" {
		t.Fatalf("with the key back: %s", a)
	}
	k.Close()

	// Declared lost: a new key, once.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	lost := filepath.Join(dir, "seal.lost")
	if err := os.WriteFile(lost, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	root = again()
	if _, err := os.Stat(lost); err == nil {
		t.Error("seal.lost is still there and would give up the next key too")
	}
	root.call("shop.read", `{"mode":"x"}`).refused(t, toolkeep.SecretRetrievalFailed)
	root.secret("shop", "value-under-the-next", `"scope":"organisation"`)
	k.Close()
	up.set("", 0)
	if a := again().call("shop.read", `{"mode":"x"}`); !a.succeeded() || up.keys() != "value-under-the-next" {
		t.Errorf("with the new key: %s", a)
	}
	k.Close()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refusedStart(t, dir)
}

// TestSecretKeyLostFromEnvironment: a store sealed with TOOLKEEP_SEAL_KEY does not
// start without it.
func TestSecretKeyLostFromEnvironment(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	key := "TOOLKEEP_SEAL_KEY=" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	k := toolkeeptest.Open(t, dir, toolkeeptest.Option{Environ: []string{key}})
	k.Close()
	refusedStart(t, dir)
	if _, err := os.Stat(filepath.Join(dir, "seal.key")); err == nil {
		t.Error("a key file was made")
	}
	toolkeeptest.Open(t, dir, toolkeeptest.Option{Environ: []string{key}}).Close()
}

// TestSecretKeyOfEarlierStore: a store from before the check gets one if its key file
// exists, and is refused if sealed data does not open.
func TestSecretKeyOfEarlierStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(dir, "seal.key")
	k := toolkeeptest.Open(t, dir)
	admin(t, k).secret("shop", "value-under-the-key", `"scope":"organisation"`)
	forget := func() {
		t.Helper()
		if err := k.Store().Apply(t.Context(), toolkeep.DeleteDocument{Kind: secret.CheckKind, ID: secret.CheckID, Expect: toolkeep.AnyRevision}); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	k.Close()
	key := readText(t, file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refusedStart(t, dir)
	if _, err := os.Stat(file); err == nil {
		t.Error("a key file was made")
	}
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	k = toolkeeptest.Open(t, dir)
	it, err := k.Store().Document(t.Context(), secret.CheckKind, "", secret.CheckID)
	if err != nil || len(it.Body) == 0 {
		t.Errorf("no check was made: %v", err)
	}
}

// TestSecretCachedResults: a cached result is valid as long as the credential that
// produced it.
func TestSecretCachedResults(t *testing.T) {
	t.Parallel()
	up := newKeyShop(t)
	k := toolkeeptest.New(t, toolkeeptest.Option{Environ: []string{"TOOLKEEP_SECRET_SHOP=x"}})
	caching := map[string]any{"cache": map[string]any{"policy": "forever"}, "side_effects": "none"}
	dir := filepath.Join(k.Dir, "secrets", "_shared")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	inFile := filepath.Join(dir, "shop")
	put := func(value string) {
		t.Helper()
		if err := os.WriteFile(inFile, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("first-in-the-file")
	k.Publish(up.tool(t, "shop.read", "secret://shop", caching), up.tool(t, "shop.file", "file://"+inFile, caching))
	root := admin(t, k)
	bob := as(t, k, k.Key("default", "bob", "agent"))
	call := func(tool, want string) {
		t.Helper()
		up.set("", 0)
		if a := bob.call(tool, `{"mode":"x"}`); !a.succeeded() || up.keys() != want {
			t.Fatalf("sent %q, want %q: %.400s", up.keys(), want, a.body)
		}
	}
	root.secret("shop", "the-organisations", `"scope":"organisation"`)
	call("shop.read", "the-organisations")
	call("shop.read", "")
	bob.secret("shop", "bobs-own-first")
	call("shop.read", "bobs-own-first")
	call("shop.read", "")
	bob.secret("shop", "bobs-own-second")
	call("shop.read", "bobs-own-second")
	if a := bob.do("DELETE", "/api/v1/secrets/shop", ""); a.status != 204 {
		t.Fatal(a)
	}
	call("shop.read", "") // the organisation's again, whose result is still valid
	bob.secret("shop", "bobs-own-first")
	call("shop.read", "bobs-own-first") // set again after a delete: a different secret
	for _, q := range []string{"", "?scope=organisation"} {
		if a := map[string]*client{"": bob, "?scope=organisation": root}[q].do("DELETE", "/api/v1/secrets/shop"+q, ""); a.status != 204 {
			t.Fatal(a)
		}
	}
	bob.call("shop.read", `{"mode":"x"}`).refused(t, toolkeep.SecretNotFound)

	call("shop.file", "first-in-the-file")
	call("shop.file", "")
	put("second-in-the-file")
	call("shop.file", "second-in-the-file")
	if err := os.Remove(inFile); err != nil {
		t.Fatal(err)
	}
	bob.call("shop.file", `{"mode":"x"}`).refused(t, toolkeep.SecretNotFound)
}

// TestSecretKeysOfNodes: nodes on a shared database are refused without the key or with
// another one.
func TestSecretKeysOfNodes(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.NewDatabase(t), t.TempDir()
	settings := func(seal string) map[string]string {
		return map[string]string{"store.dsn": dsn, "secrets.seal_key": filepath.Join(dir, seal), "store.blobs": filepath.Join(dir, "blobs")}
	}
	toolkeeptest.New(t, toolkeeptest.Option{Settings: settings("one")})
	toolkeeptest.New(t, toolkeeptest.Option{Settings: settings("one")})
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(filepath.Join(dir, "other"), bytes.Repeat([]byte{9}, 32), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		flags := settings("other")
		flags["data"] = filepath.Join(t.TempDir(), "data")
		c, err := config.Load(config.Sources{Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		n, err := node.New(context.Background(), c, node.Options{LogTo: io.Discard})
		if err == nil {
			_ = n.Stop(context.Background())
			t.Fatal("a node with another key was started")
		}
		if e := toolkeep.AsError(err); e.Code != toolkeep.SecretRetrievalFailed {
			t.Errorf("the start gave %v", err)
		}
	}
}
