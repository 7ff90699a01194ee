package toolkeeptest_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestSessionsAtAnyNode: a balancer may send the requests of an MCP session to any
// node, including the session's own answers and its event stream.
func TestSessionsAtAnyNode(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2)
	key := nodes[0].Key("default", "agent-1", "admin")
	auth := []string{"Authorization", "Bearer " + key, "Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	send := func(k *toolkeeptest.Toolkeep, method, body, session string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, k.URL()+"/mcp/all", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(auth); i += 2 {
			req.Header.Set(auth[i], auth[i+1])
		}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	status := func(r *http.Response) int { r.Body.Close(); return r.StatusCode }
	nodes[1].AwaitKey("default", key)
	first := send(nodes[0], http.MethodPost, begin, "")
	session := first.Header.Get("Mcp-Session-Id")
	if got := status(first); got != http.StatusOK || session == "" {
		t.Fatalf("initialize gives %d and the session %q", got, session)
	}
	if got := status(send(nodes[1], http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session)); got != http.StatusAccepted {
		t.Fatalf("the other node answers initialized with %d", got)
	}
	list := send(nodes[1], http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, session)
	if got := status(list); got != http.StatusOK {
		t.Fatalf("the other node answers tools/list with %d", got)
	}

	stream := send(nodes[1], http.MethodGet, "", session)
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("the other node answers GET with %d", stream.StatusCode)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stream.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	nodes[1].Publish(toolkeeptest.Manifest("demo.news", "1.0.0", "echo", `"side_effects":"none"`))
	limit := time.After(time.Minute)
	for heard := false; !heard; {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatal("the stream ended")
			}
			heard = strings.Contains(line, "notifications/tools/list_changed")
		case <-limit:
			t.Fatal("no list_changed came over the other node")
		}
	}
	stream.Body.Close()

	// Another principal's key cannot use the session on either node.
	other := nodes[0].Key("default", "agent-2", "admin")
	nodes[1].AwaitKey("default", other)
	auth[1] = "Bearer " + other
	if got := status(send(nodes[1], http.MethodPost, `{"jsonrpc":"2.0","id":3,"method":"ping"}`, session)); got != http.StatusNotFound {
		t.Errorf("another principal gets %d", got)
	}
	auth[1] = "Bearer " + key

	// A signed request is checked by the node that gets it, and handed over with what it found.
	var made struct {
		Secret string
		Signs  string `json:"signing_secret"`
	}
	if code, answer := nodes[0].Do("POST", "/api/v1/keys", `{"subject":"runtime","roles":["agent"],"require_signature":true}`); json.Unmarshal([]byte(answer), &made) != nil || made.Signs == "" {
		t.Fatalf("%d %s", code, answer)
	}
	nodes[1].AwaitKey("default", made.Secret)
	for i, k := range nodes {
		path, headers, body := "/mcp/all", append([]string{}, auth[2:]...), `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
		if i == 0 {
			body = begin
		} else {
			headers = append(headers, "Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-11-25")
		}
		code, refusal, sent := sendSigned(t, k.URL(), path, made.Secret, made.Signs, body, nil, headers...)
		if code != http.StatusOK {
			t.Fatalf("a signed request at node %d: %d %s", i, code, refusal)
		}
		if _, refusal := sendAgain(t, sent); refusal != toolkeep.ReplayDetected {
			t.Errorf("again at node %d: %s", i, refusal)
		}
		if i == 0 {
			session = signedSession(t, k, made.Secret, made.Signs, begin)
		}
	}

	// The session's node stops: the client is told to start a new session.
	nodes[0].Close()
	if got := status(send(nodes[1], http.MethodPost, `{"jsonrpc":"2.0","id":4,"method":"ping"}`, session)); got != http.StatusNotFound {
		t.Errorf("a session of a node that is gone gives %d", got)
	}
}

// signedSession begins a session with a key that must sign.
func signedSession(t *testing.T, k *toolkeeptest.Toolkeep, key, secret, begin string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, k.URL()+"/mcp/all", strings.NewReader(begin))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Authorization": "Bearer " + key, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
		req.Header.Set(name, v)
	}
	resp, err := (&signing.Transport{Key: []byte(secret)}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.Header.Get("Mcp-Session-Id")
}
