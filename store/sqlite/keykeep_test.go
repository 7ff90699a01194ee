package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestKeyKeep(t *testing.T) {
	storetest.KeyKeep(t, func(keep time.Duration, clock func() time.Time) storetest.Store {
		s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "db"), KeyKeep: keep, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
