package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/datadir"
)

// TestSpoiledDatabase: an emptied or damaged database is no new start, and the error says
// what to do.
func TestSpoiledDatabase(t *testing.T) {
	for name, x := range map[string]struct {
		database, key string
		want          []string
	}{
		"empty":          {"", "key", []string{"is empty", "toolkeep restore", "toolkeep doctor"}},
		"no database":    {strings.Repeat("no database", 500), "key", []string{"damaged", "toolkeep restore", "toolkeep doctor"}},
		"neither, alone": {strings.Repeat("no database", 500), "", []string{"damaged"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Load(config.Sources{Flags: map[string]string{"data": t.TempDir()}})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(c.Data, datadir.Database)
			if err := os.WriteFile(path, []byte(x.database), 0o600); err != nil {
				t.Fatal(err)
			}
			if x.key != "" {
				if err := os.WriteFile(filepath.Join(c.Data, datadir.SealKey), []byte(x.key), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err = New(t.Context(), c, Options{LogTo: &strings.Builder{}})
			if err == nil {
				t.Fatal("the node was made")
			}
			for _, w := range x.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v, want %q", err, w)
				}
			}
			if raw, _ := os.ReadFile(path); string(raw) != x.database {
				t.Error("the database was changed")
			}
		})
	}
}
