package toolkeeptest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func fileTool(id, operation, effects string) string {
	return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":"1.0.0","description":"A tool of a test.","side_effects":%q,
		"parameters_schema":{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}}},
		"permissions":{"filesystem":[{"path":".","mode":"rw"}]},"execution":{"kind":"file","binding":{"operation":%q,"make_dirs":true}}}`, id, effects, operation)
}

// TestFilesOfTenants: two tenants use one tool, each in its own directory.
func TestFilesOfTenants(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	k.Publish(fileTool("files.write", "write", "writes"), strings.Replace(fileTool("files.read", "read", "reads"), `,"make_dirs":true`, "", 1))
	ann, stray := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key(otherTenant, "ann", "agent"))
	ann.call("files.write", `{"path":"a/secret.txt","content":"of default"}`, keyed("k1")).success(t)
	stray.call("files.write", `{"path":"a/mine.txt","content":"of other"}`).success(t)
	raw, err := os.ReadFile(filepath.Join(k.Dir, "files", "default", "a", "secret.txt"))
	if err != nil || string(raw) != "of default" {
		t.Errorf("%q %v", raw, err)
	}
	if a := ann.call("files.read", `{"path":"a/secret.txt"}`).success(t); !strings.Contains(a.body, "of default") {
		t.Errorf("%s", a.body)
	}
	absolute, err := filepath.Abs(filepath.Join(k.Dir, "files", "default", "a", "secret.txt"))
	if err != nil {
		t.Fatal(err)
	}
	stray.call("files.read", `{"path":"a/secret.txt"}`).refused(t, toolkeep.InputValidationFailed)
	stray.call("files.read", `{"path":"`+absolute+`"}`).want(t, 403).refused(t, toolkeep.FilesystemDenied)
	stray.call("files.read", `{"path":"../default/a/secret.txt"}`).want(t, 403).refused(t, toolkeep.FilesystemDenied)
	// A refused write leaves its key free; a successful one is replayed.
	ann.call("files.write", `{"path":"/etc/toolkeep","content":"x"}`, keyed("k2")).refused(t, toolkeep.FilesystemDenied)
	ann.call("files.write", `{"path":"b.txt","content":"x"}`, keyed("k2")).success(t)
	if a := ann.call("files.write", `{"path":"a/secret.txt","content":"of default"}`, keyed("k1")).success(t); !strings.Contains(a.body, `"created":true`) {
		t.Errorf("%s", a.body)
	}
}
