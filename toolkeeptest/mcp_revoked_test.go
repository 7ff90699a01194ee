package toolkeeptest_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestRevokedKeyEndsItsSession: a client's open streams end with its key, and deliver
// no later changes.
func TestRevokedKeyEndsItsSession(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	boss := admin(t, k)
	var made struct {
		ID     string `json:"id"`
		Secret string `json:"secret"`
	}
	a := boss.do("POST", "/api/v1/keys", `{"subject":"ann","roles":["agent"]}`).want(t, 201)
	if err := json.Unmarshal([]byte(a.body), &made); err != nil || made.Secret == "" {
		t.Fatalf("%v: %s", err, a)
	}
	ann := as(t, k, made.Secret)
	session := ann.says("/all", "", initialize).want(t, 200).header.Get("Mcp-Session-Id")
	ann.says("/all", session, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`).want(t, 200)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, k.URL()+"/mcp/all", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + made.Secret, "Accept": "text/event-stream", "Mcp-Session-Id": session} {
		req.Header.Set(name, value)
	}
	resp, err := ann.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("no stream: %s", resp.Status)
	}
	boss.do("DELETE", "/api/v1/keys/"+made.ID, "").want(t, 204)
	ann.says("/all", session, `{"jsonrpc":"2.0","id":3,"method":"ping"}`).want(t, 401)
	k.Publish(toolkeeptest.Manifest("fresh.echo", "1.0.0", "echo"))
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "list_changed") {
			t.Errorf("the stream told %s", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}
