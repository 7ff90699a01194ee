package toolkeeptest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/servertest"
)

// TestServedDocument sends what the served OpenAPI document describes, and what it forbids, to every operation, as an
// administrator and as an agent. No answer may be a 5xx, have a status, content type or header that the document does
// not name, or a body against its schema. The requests are the same in every run.
func TestServedDocument(t *testing.T) {
	program, err := filepath.Abs("../tools/mcptest/venv-schemathesis/bin/schemathesis")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		servertest.Missing(t, "schemathesis is not installed; scripts/test-deps.sh installs it")
	}
	// What an agent may not do is refused in the same way whatever it sends.
	for who, phases := range map[string]string{"admin": "coverage,fuzzing", "agent": "fuzzing"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			k := New(t, Option{Settings: map[string]string{"examples.enabled": "true"}})
			key := k.AdminKey
			if who == "agent" {
				key = k.Key("default", "tester", "agent")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, program, "run", k.URL()+"/openapi.json", "-H", "Authorization: Bearer "+key,
				"-c", "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance",
				"--phases", phases, "--max-examples", "3", "--seed", "1", "--no-shrink", "--continue-on-failure", "--max-failures", "10", "--request-timeout", "60", "--exclude-operation-id", "watchInvocations") // which has no end
			c.Dir = t.TempDir()
			out, err := c.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
