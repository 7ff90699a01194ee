package toolkeeptest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestErasure: an erasure on one node takes what both recorded of a person out of every answer of both; the chains verify,
// the person calls again, and only who has the permission erases.
func TestErasure(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2)
	a, b := nodes[0], nodes[1]
	admin, person := a.Key("default", "root", "admin"), a.Key("default", "margarethe", "agent", "auditor")
	b.AwaitKey("default", admin)
	b.AwaitKey("default", person)
	do := func(k *toolkeeptest.Toolkeep, key, method, path, body string, want int, header ...string) string {
		t.Helper()
		status, answer := k.Do(method, path, body, append(header, "Authorization", "Bearer "+key)...)
		if status != want {
			t.Errorf("%s %s is %d: %s", method, path, status, answer)
		}
		return answer
	}
	a.Publish(toolkeeptest.Manifest("demo.kept", "1.0.0", "echo", `"side_effects":"none"`))
	within(t, time.Second, "the tool is there", func() bool {
		status, _ := b.Do(http.MethodPost, "/api/v1/tools/invoke", `{"tool_id":"demo.kept","parameters":{"message":"x"}}`, "Authorization", "Bearer "+admin)
		return status == http.StatusOK
	})
	const marker = "Musterweg 17"
	call := func(k *toolkeeptest.Toolkeep, key string, want int) string {
		t.Helper()
		return do(k, person, http.MethodPost, "/api/v1/tools/invoke", `{"tool_id":"demo.kept","parameters":{"message":"`+marker+`"}}`, want, "Idempotency-Key", key)
	}
	var ids []string
	for i, k := range nodes {
		var answer struct {
			ID string `json:"invocation_id"`
		}
		if err := json.Unmarshal([]byte(call(k, fmt.Sprint("key-", i), 200)), &answer); err != nil || answer.ID == "" {
			t.Fatal(answer, err)
		}
		ids = append(ids, answer.ID)
	}
	for _, k := range nodes {
		for _, id := range ids {
			if got := do(k, person, http.MethodGet, "/api/v1/invocations/"+id, "", 200); !strings.Contains(got, marker) {
				t.Errorf("before the erasure: %s", got)
			}
		}
	}
	a.Do(http.MethodGet, "/api/v1/tools/retrieval/search?q=Musterweg+17", "", "Authorization", "Bearer "+person) // whatever it finds
	events := func(k *toolkeeptest.Toolkeep) string {
		return do(k, admin, http.MethodGet, "/api/v1/audit/events?agent_id=margarethe&page_size=200", "", 200)
	}
	for _, k := range nodes {
		waitUntil(t, "the event of the search", func() bool { return strings.Contains(events(k), `"query":"`+marker) })
	}
	if strings.Contains(do(a, person, http.MethodPost, "/api/v1/audit/erasures", `{"person":"margarethe"}`, 403), "person_digest") {
		t.Error("it was erased without the permission")
	}
	var done struct {
		Digest string `json:"person_digest"`
		HadKey bool   `json:"had_key"`
	}
	if err := json.Unmarshal([]byte(do(a, admin, http.MethodPost, "/api/v1/audit/erasures", `{"person":"margarethe"}`, 200)), &done); err != nil || !done.HadKey || len(done.Digest) != 32 {
		t.Fatal(done, err)
	}
	if got := do(b, admin, http.MethodPost, "/api/v1/audit/erasures", `{"person":"margarete"}`, 200); !strings.Contains(got, `"had_key":false`) {
		t.Errorf("the erasure of a person without records is %s", got)
	}
	for _, k := range nodes {
		if got := do(k, admin, http.MethodGet, "/api/v1/audit/events?type=ai.agent.tool.usage.forgotten", "", 200); strings.Count(got, `"erased":true`) != 2 || strings.Contains(got, "user_id") {
			t.Errorf("the events of what search forgot are %s", got)
		}
	}
	within(t, time.Second, "the other node has dropped the key", func() bool {
		_, got := b.Do(http.MethodGet, "/api/v1/invocations/"+ids[0], "", "Authorization", "Bearer "+person)
		return strings.Contains(got, `"erased":true`) && !strings.Contains(got, marker)
	})
	for _, k := range nodes {
		if got := events(k); strings.Contains(got, marker) || strings.Contains(got, `"user_id"`) {
			t.Errorf("the person's events are %s", got)
		}
	}
	for i, k := range nodes {
		for _, id := range ids {
			if got := do(k, person, http.MethodGet, "/api/v1/invocations/"+id, "", 200); strings.Contains(got, marker) || !strings.Contains(got, "erased") {
				t.Errorf("after the erasure: %s", got)
			}
			if got := do(k, admin, http.MethodGet, "/api/v1/audit/events?id="+id, "", 200); strings.Contains(got, "call_id") || !strings.Contains(got, `"erased":true`) {
				t.Errorf("its entry is %s", got)
			}
		}
		if got := call(k, fmt.Sprint("key-", i), 409); !strings.Contains(got, "E3908") {
			t.Errorf("a call with its key is %s", got)
		}
		if got := do(k, admin, http.MethodGet, "/api/v1/audit/events?type=ai.agent.audit.erased", "", 200); !strings.Contains(got, done.Digest) || strings.Contains(got, "margarethe") {
			t.Errorf("the event is %s", got)
		}
		if got := do(k, admin, http.MethodGet, "/api/v1/audit/verify", "", 200); !strings.Contains(got, `"intact":true`) {
			t.Errorf("verify is %s", got)
		}
		again := call(k, fmt.Sprint("again-", i), 200)
		if !strings.Contains(again, marker) {
			t.Errorf("a later call is %s", again)
		}
		if got := call(k, fmt.Sprint("again-", i), 200); !strings.Contains(got, marker) {
			t.Errorf("a later call with its key is %s", got)
		}
	}
}
