package discover_test

import (
	"path/filepath"
	"testing"

	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/vectortest"
)

func TestMemory(t *testing.T) {
	vectortest.Run(t, func(*testing.T) vectortest.Place {
		return vectortest.Place{Open: func(*testing.T) discover.Backend { return discover.NewMemory("", nil) }, Later: func() {}}
	})
}

func TestMemoryWithFiles(t *testing.T) {
	vectortest.Run(t, func(t *testing.T) vectortest.Place {
		dir := filepath.Join(t.TempDir(), "vectors")
		return vectortest.Place{Open: func(*testing.T) discover.Backend { return discover.NewMemory(dir, nil) }, Later: func() {}, Lasting: true}
	})
}
