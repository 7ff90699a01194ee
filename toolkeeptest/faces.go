package toolkeeptest

import (
	"context"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/face/facetest"
	"github.com/toolkeep/toolkeep/node"
)

// ForFaces starts a system with what the transcripts of face/facetest need. keys holds
// API keys by role; each subject has the name of its role.
func ForFaces(t testing.TB) (k *Toolkeep, tools *facetest.Tools, keys map[string]string) {
	t.Helper()
	tools = facetest.NewTools()
	k = New(t, Option{Options: node.Options{Executors: []toolkeep.Executor{tools}}})
	k.Publish(facetest.Manifests()...)
	k.state("face.echo", "0.9.0", toolkeep.Deprecated)
	k.state("face.blocked", "1.0.0", toolkeep.Blocked)
	keys = map[string]string{"stranger": "tk_stranger"}
	for _, role := range []string{"admin", "agent", "auditor"} {
		keys[role] = k.Key("default", role, role)
	}
	tools.Mint = func(t testing.TB, tool string) string {
		text, _, err := k.Node.Tokens().Mint(context.Background(), capability.Claims{Expires: time.Now().Add(time.Hour),
			Grant: toolkeep.Grant{Tenant: "default", Agent: "agent", Tools: []string{tool}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	return k, tools, keys
}

// state sets a version's state.
func (k *Toolkeep) state(tool, version string, s toolkeep.VersionState) {
	k.t.Helper()
	_, err := k.Catalog().SetState(context.Background(), access.System(), tool, version, catalog.StateChange{State: s, Reason: "for a test"})
	if err != nil {
		k.t.Fatal(err)
	}
}
