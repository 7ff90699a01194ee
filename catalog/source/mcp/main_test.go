package mcp

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checkDefinition checks that a tool preserves its whole definition.
func checkDefinition(t testing.TB, tool *toolkeep.Tool) {
	t.Helper()
	def, err := Definition(tool)
	if err != nil {
		t.Errorf("%s: %v", tool.ID, err)
		return
	}
	if digest, err := Digest(def); err != nil || digest != tool.Manifest.Source.Digest {
		t.Errorf("%s: its definition is not the one that is pinned: %v\n%s", tool.ID, err, def)
	}
}
