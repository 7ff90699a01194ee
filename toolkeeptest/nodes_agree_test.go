package toolkeeptest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestNodesSayWhatDiffers: whole nodes on one database, of which the second has something
// otherwise. The log names it, once, and /health says what it is without names; only what
// would break calls makes a node not ready.
func TestNodesSayWhatDiffers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.NewDatabase(t)
	keys := filepath.Join(t.TempDir(), "seal.key")
	sealer, err := secret.OpenSealer(keys)
	if err != nil {
		t.Fatal(err)
	}
	copyOf := func(name string) string {
		raw, err := os.ReadFile(keys)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(to, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return to
	}
	issuers := filepath.Join(t.TempDir(), "issuers.yaml")
	if err := os.WriteFile(issuers, []byte("issuers:\n  - issuer: http://127.0.0.1:1/\n    tenants: [partner]\n    scopes: {use: agent}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	old, blobs := copyOf("old.key"), filepath.Join(t.TempDir(), "blobs")
	start := func(o node.Options, settings ...string) *toolkeeptest.Toolkeep {
		all := map[string]string{"store.dsn": dsn, "secrets.seal_key": keys, "store.blobs": blobs}
		for i := 0; i < len(settings); i += 2 {
			all[settings[i]] = settings[i+1]
		}
		return toolkeeptest.New(t, toolkeeptest.Option{Settings: all, Options: o})
	}
	first := start(node.Options{}, "node.name", "first")
	shifted := func(d time.Duration) node.Options {
		return node.Options{Clock: func() time.Time { return time.Now().Add(d) }}
	}
	const nothing = "nothing differs"
	says := func(k *toolkeeptest.Toolkeep, status int, overall string, words ...string) {
		t.Helper()
		waitUntil(t, overall+" and "+strings.Join(words, ", "), func() bool {
			a := as(t, k, "").do("GET", "/health/ready", "")
			found := a.status == status && a.text(t, "status") == overall
			for _, name := range []string{"first", "second", "folder", "secrets."} { // no key is needed to read it
				if strings.Contains(string(a.body), name) {
					t.Fatalf("health says %s", a.body)
				}
			}
			for _, w := range words {
				if w == nothing {
					found = found && !strings.Contains(string(a.body), `"what"`)
					continue
				}
				found = found && strings.Contains(string(a.body), `"what"`) && strings.Contains(k.Log(), w)
			}
			return found
		})
	}
	says(first, 200, "UP", nothing)
	for _, c := range []struct {
		what            string
		o               node.Options
		settings        []string
		status          int
		overall         string
		words           []string
		firstSays, logs string
	}{
		{"blobs", node.Options{}, []string{"store.blobs", filepath.Join(t.TempDir(), "other")}, 200, "DEGRADED",
			[]string{"first stores full results in another folder", "store.blobs"}, "DEGRADED", "another folder"},
		{"issuers", node.Options{}, []string{"oauth.issuers_file", issuers}, 200, "DEGRADED",
			[]string{"first has another file of OAuth issuers", "oauth.issuers_file"}, "DEGRADED", "another file of OAuth issuers"},
		{"version", node.Options{}, []string{"service.version", "9.9.9"}, 200, "UP", []string{"first (test) runs another version", "9.9.9"}, "UP", "another version"},
		{"clock", shifted(5 * time.Second), nil, 200, "DEGRADED", []string{"clock is 5s off", "NTP"}, "UP", "clock is 5s off"},
		{"wrong clock", shifted(-time.Minute), nil, 503, "DOWN", []string{"clock is 1m0s off", "NTP"}, "UP", "clock is 1m0s off"},
	} {
		second := start(c.o, append(c.settings, "node.name", "second")...)
		says(second, c.status, c.overall, c.words...)
		says(first, 200, c.firstSays)
		second.Close()
		lines := 0
		for line := range strings.Lines(second.Log()) {
			if strings.Contains(line, "this node differs") && strings.Contains(line, c.logs) {
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("%s: %d lines in the log", c.what, lines)
		}
		says(first, 200, "UP", nothing)
	}

	// The first node has a new key; the second has a copy of the file as it was, and what is
	// sealed from now on it cannot open.
	second := start(node.Options{}, "secrets.seal_key", old, "node.name", "second")
	says(second, 200, "UP", nothing)
	if _, err := sealer.AddKey(); err != nil {
		t.Fatal(err)
	}
	says(second, 503, "DOWN", "first seals with a key that this node does not have", "secrets.seal_key")
	says(first, 200, "DEGRADED", "second does not have the key")
	raw, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	says(second, 200, "UP", nothing)
	says(first, 200, "UP")
	for _, k := range []*toolkeeptest.Toolkeep{first, second} {
		k.Close()
		for _, line := range strings.Fields(string(raw)) {
			if strings.Contains(k.Log(), line) {
				t.Error("the log has a key")
			}
		}
	}
}
