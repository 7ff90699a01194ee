package access

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// lines collects log lines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// TestRolesFileChanges: a changed file of roles decides without a restart, and one that cannot be used changes nothing.
func TestRolesFileChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "roles.yaml")
	write := func(text string) {
		t.Helper()
		err := os.WriteFile(file+".new", []byte(text), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file) // a file that is being written may be read while it is empty
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("roles:\n  reader: {allow: [{tools: [\"a.*\"]}]}\n")
	log := &lines{}
	a := open(t, Config{RolesText: []byte("also: {allow: [{tools: [\"c.*\"]}]}\n"), RolesFile: file, Log: slog.New(slog.NewTextHandler(log, nil))})
	boss := &toolkeep.Principal{Tenant: "acme", Subject: "boss", Roles: []string{Admin}, Permissions: []string{"*"}}
	_, text, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "bot", Roles: []string{"reader", "also"}})
	if err != nil {
		t.Fatal(err)
	}
	may := func(id string) bool {
		p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, addr))
		tool := &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: "sha256:" + id, Manifest: &toolkeep.Manifest{SideEffects: "reads"}}
		return a.Authorise(p, tool, &toolkeep.Call{Tool: id}).Allowed
	}
	becomes := func(what string, is func() bool) {
		t.Helper()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(time.Minute); !is(); <-tick.C {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	if !may("a.x") || may("b.x") || !may("c.x") {
		t.Fatal("the first roles do not decide")
	}
	write("roles:\n  reader: {allow: [{tools: [\"b.*\", \"bb.*\"]}]}\n") // of another length: the clock of files may be coarse
	becomes("the changed roles do not decide", func() bool { return may("b.x") })
	if may("a.x") || !may("c.x") {
		t.Error("the former roles decide beside the new ones")
	}
	write("roles:\n  reader: {allow: [{tools: [\"a.*\"]}], denies: []}\n")
	becomes("health does not tell of a file that cannot be used", func() bool { return a.RolesHealth(t.Context()) != nil })
	if err := a.RolesHealth(t.Context()); !strings.Contains(err.Error(), "denies") || !may("b.x") || may("a.x") {
		t.Errorf("after a mistake: %v", err)
	}
	write("roles: {}\n")
	becomes("the role that is gone decides", func() bool { return !may("b.x") })
	becomes("health still tells of the mistake", func() bool { return a.RolesHealth(t.Context()) == nil })
}
