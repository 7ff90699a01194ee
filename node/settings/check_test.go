package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/sharedcache"
)

// TestCheck has settings that node.New refuses, each with the words that tell which.
func TestCheck(t *testing.T) {
	vault := func(paths ...string) config.Vault {
		return config.Vault{Address: "https://vault.example:8200", Auth: "token", Token: "s.hunter2", Prefix: "secret/x", Paths: paths, TransitMount: "transit"}
	}
	data := filepath.Join(t.TempDir(), "data")
	cluster := miniredis.RunT(t)
	cluster.SetError("MOVED 11558 127.0.0.1:7002")
	for name, tt := range map[string]struct {
		c    config.Config
		want []string // one for each fault
	}{
		"right": {config.Config{Files: config.Files{Roots: []string{"{tenant}:rw", "/srv/reports"}}, Vault: vault("secret/data/{tenant}/"),
			SQL: config.SQL{SQLiteRoots: []string{"/srv/{tenant}/db", "/srv/x{tenant}"}, SocketDirs: []string{"/run/postgresql"}}}, nil},
		"none":            {config.Config{Files: config.Files{Roots: []string{"none"}}}, nil},
		"another mark":    {config.Config{Files: config.Files{Roots: []string{"/srv/{tenat}:rw"}}}, []string{`"/srv/{tenat}"`}},
		"out of the data": {config.Config{Files: config.Files{Roots: []string{"../../x:rw"}}}, []string{`files.roots.*".."`}},
		"the processes":   {config.Config{Files: config.Files{Roots: []string{"/proc"}}}, []string{`files.roots.*"/proc"`}},
		"Vault's own":     {config.Config{Vault: vault("sys/")}, []string{`"sys/"`}},
		"a file's folder": {config.Config{SQL: config.SQL{SQLiteRoots: []string{"x"}}}, []string{`sql.sqlite_roots: the folder "x"`}},
		"no address":      {config.Config{Search: config.Search{Vectors: "pgvector"}}, []string{"set store.dsn, or search.vectors_dsn"}},
		"a bad address":   {config.Config{Search: config.Search{Vectors: "pgvector", VectorsDSN: "postgres://u:hunter2@h:x/d"}}, []string{"cannot be read"}},
		"an address":      {config.Config{Search: config.Search{Vectors: "pgvector", VectorsDSN: "postgres://u:hunter2@h:1/d"}}, nil},
		"every variable":  {config.Config{Secrets: config.Secrets{Env: []string{"GITHUB_TOKEN", "*"}}}, []string{`the pattern "*" would open every`}},
		"a seal key":      {config.Config{Secrets: config.Secrets{SealKeys: "hunter2"}}, []string{"keys of 32 bytes"}},
		"a proxy":         {config.Config{Egress: config.Egress{Proxy: "ftp://user:hunter2@proxy.example"}}, []string{"egress.proxy: the proxy must be"}},
		"Redis elsewhere": {config.Config{Redis: config.Redis{URL: "redis://redis.example:6379"}}, []string{"must be rediss://"}},
		"a Redis cluster": {config.Config{Redis: config.Redis{URL: "redis://" + cluster.Addr(), Timeout: 10 * time.Second}}, []string{"node of a Redis cluster"}},
		"with a password": {config.Config{Redis: config.Redis{URL: "redis://" + cluster.Addr(), Password: "env://TOOLKEEP_SECRET_REDIS"}}, nil},
		"no public url":   {config.Config{HTTP: config.HTTP{PublicURL: "tools.example.com"}}, []string{"https://tools.example.com"}},
		"a public url":    {config.Config{HTTP: config.HTTP{PublicURL: "https://tools.example.com/toolkeep/"}}, nil},
		"embeddings":      {config.Config{Search: config.Search{EmbeddingsURL: "ftp://x", EmbeddingsModel: "m", EmbeddingsDimensions: 8}}, []string{"address of the embedding service"}},
		"no embeddings":   {config.Config{Search: config.Search{Model: "none", EmbeddingsURL: "ftp://x"}}, nil},
		"all at once": {config.Config{Files: config.Files{Roots: []string{"/a{b"}}, SQL: config.SQL{SocketDirs: []string{"/run/{user}"}}, Vault: vault("../x")},
			[]string{`"/a{b"`, `sql.socket_dirs: the folder "/run/{user}"`, `"../x"`}},
	} {
		tt.c.Data = data
		err := Check(t.Context(), &tt.c)
		if len(tt.want) == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		e := toolkeep.AsError(err)
		if e == nil || e.Code != toolkeep.InvalidManifest {
			t.Errorf("%s: %v", name, err)
			continue
		}
		faults := e.Details["errors"].([]toolkeep.Fault)
		if len(faults) != len(tt.want) {
			t.Errorf("%s: %+v", name, faults)
			continue
		}
		for i, want := range tt.want {
			head, tail, _ := strings.Cut(want, ".*")
			if got := faults[i].Message; !strings.Contains(got, head) || !strings.Contains(got, tail) || strings.Contains(got, "hunter2") {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("checking the settings made the data directory")
	}
}

// TestOfResults: settings that results depend on make another build, those of a node's own folders do not.
func TestOfResults(t *testing.T) {
	build := func(change func(*config.Config)) string {
		var c config.Config
		change(&c)
		return sharedcache.Build("1.0.0", OfResults(&c))
	}
	base := build(func(*config.Config) {})
	for name, tt := range map[string]struct {
		change func(*config.Config)
		same   bool
	}{
		"tools.strict":     {func(c *config.Config) { c.Tools.Strict = true }, false},
		"tools.coerce_to":  {func(c *config.Config) { c.Tools.CoerceTo = []string{"date"} }, false},
		"calls.max_result": {func(c *config.Config) { c.Calls.MaxResult = 1 << 20 }, false},
		"egress.tls_min":   {func(c *config.Config) { c.Egress.TLSMin = "1.3" }, false},
		"files.roots":      {func(c *config.Config) { c.Files.Roots = []string{"none"} }, true},
		"node.name":        {func(c *config.Config) { c.Node.Name = "b" }, true},
	} {
		if got := build(tt.change) == base; got != tt.same {
			t.Errorf("%s: the build is the same: %t, want %t", name, got, tt.same)
		}
	}
}
