package toolkeeptest_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// exchanger is an authorization server that exchanges tokens of an issuer for tokens of an API, and that API: it answers
// whose token it got.
type exchanger struct {
	*httptest.Server
	trusts *issuer

	mu      sync.Mutex
	people  map[string]string // by issued token
	asked   int               // exchanges
	called  int               // requests of the API
	refuse  int               // requests of the API to answer with 401
	subject string            // last seen type of the subject token
}

func newExchanger(t *testing.T, trusts *issuer) *exchanger {
	e := &exchanger{trusts: trusts, people: map[string]string{}}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

// holder returns whom a token of the issuer for the audience names, "" if it is not one.
func (s *issuer) holder(token, aud string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		Sub, Aud string
		Exp      int64
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(sig) != 64 || !ecdsa.Verify(&s.key.PublicKey, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		return ""
	}
	if raw, err := base64.RawURLEncoding.DecodeString(parts[1]); err != nil || json.Unmarshal(raw, &claims) != nil || claims.Aud != aud || time.Now().Unix() >= claims.Exp {
		return ""
	}
	return claims.Sub
}

func (e *exchanger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/token" {
		e.called++
		person, ok := e.people[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		if !ok || e.refuse > 0 {
			e.refuse--
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"you":%q}`, person)
		return
	}
	e.asked++
	id, hush, _ := r.BasicAuth()
	e.subject = r.FormValue("subject_token_type")
	person := e.trusts.holder(r.FormValue("subject_token"), r.FormValue("params_aud"))
	code := ""
	switch {
	case id != "tk" || hush != url.QueryEscape("client-secret-of-tk"):
		code = "invalid_client"
	case r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange":
		code = "unsupported_grant_type"
	case person == "":
		code = "invalid_grant"
	case r.FormValue("audience") != e.URL:
		code = "invalid_target"
	case person == "carol":
		code = "consent_required"
	}
	if code != "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%q,"error_description":%q}`, code, r.FormValue("subject_token"))
		return
	}
	token := fmt.Sprintf("upstream-token-%s-%d", person, e.asked)
	e.people[token] = person
	fmt.Fprintf(w, `{"access_token":%q,"issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`, token)
}

func (e *exchanger) counts() (asked, called int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked, e.called
}

// tool is one that acts with its caller's own token; more changes its manifest.
func (e *exchanger) tool(t *testing.T, k *toolkeeptest.Toolkeep, id string, more map[string]any) string {
	all := map[string]any{"permissions": map[string]any{"network": []any{map[string]any{"host": "127.0.0.1"}}},
		"execution": map[string]any{"kind": "http", "timeout_ms": 20000, "binding": map[string]any{"method": "GET", "server": e.URL, "path": "/"}}}
	for name, v := range more {
		all[name] = v
	}
	return httpTool(t, id, e.URL, 0, []any{map[string]any{"type": "oauth2_token_exchange", "secret": "secret://exchange", "token_url": e.URL + "/token",
		"settings": map[string]any{"audience": e.URL, "params": map[string]any{"params_aud": k.URL()}}}}, all)
}

// TestOnBehalf: a person's own rights reach the tool, over every face, and nothing of the person's token stays.
func TestOnBehalf(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	k := s.start(t, nil, node.Options{})
	e := newExchanger(t, s)
	root := admin(t, k)
	root.secret("exchange", "tk:client-secret-of-tk", `"scope":"organisation"`)
	k.Publish(e.tool(t, k, "api.me", nil), e.tool(t, k, "api.kept", map[string]any{"cache": map[string]any{"policy": "ttl", "ttl_s": 600}, "result": map[string]any{"public": true}}),
		e.tool(t, k, "api.risky", map[string]any{"requires_approval": true}))
	var tokens []string
	tokenOf := func(name string, more ...map[string]any) string {
		token := s.token(k, "tools:call", append([]map[string]any{{"sub": name}}, more...)...)
		tokens = append(tokens, token)
		return token
	}
	people := map[string]string{"ann": tokenOf("ann"), "bob": tokenOf("bob")}

	var all sync.WaitGroup
	for i := range 40 {
		name := []string{"ann", "bob"}[i%2]
		tool := []string{"api.me", "api.kept"}[i/2%2]
		all.Go(func() {
			a := as(t, k, people[name]).do("POST", "/api/v1/tools/invoke", `{"tool_id":"`+tool+`","parameters":{"mode":"x"}}`)
			if !a.succeeded() || !strings.Contains(a.body, `"you":"`+name+`"`) {
				t.Errorf("%s of %s: %s", tool, name, a)
			}
		})
	}
	all.Wait()
	if asked, _ := e.counts(); asked != 2 { // for each person: both tools have the same entry
		t.Errorf("%d exchanges", asked)
	}
	if r, err := overGRPC(t, k, people["ann"], "std.echo"); err != nil || r.State != toolkeep.CallSucceeded {
		t.Errorf("gRPC: %+v %v", r, err)
	}
	mcp := agent(t, k, people["bob"], "/all")
	if res, err := mcp.CallTool(t.Context(), &sdk.CallToolParams{Name: "api__me", Arguments: map[string]any{"mode": "x"}}); err != nil || !strings.Contains(fmt.Sprint(res.StructuredContent), "bob") {
		t.Errorf("MCP: %+v %v", res, err)
	}

	// A token that the API refuses is replaced once.
	asked, _ := e.counts()
	e.mu.Lock()
	e.refuse = 1
	e.mu.Unlock()
	as(t, k, people["ann"]).call("api.me", `{"mode":"x"}`).success(t)
	if now, _ := e.counts(); now != asked+1 {
		t.Errorf("%d exchanges after a refusal", now-asked)
	}

	// What has no token of its own, or cannot keep it, is refused before anything is sent.
	asked, called := e.counts()
	ann := as(t, k, people["ann"])
	stranger := as(t, k, k.Key("default", "ann", "agent"))
	boss := as(t, k, s.token(k, "tools:admin", map[string]any{"sub": "root"}))
	for name, x := range map[string]struct {
		a      answer
		reason string
	}{
		"an API key":    {stranger.call("api.me", `{"mode":"x"}`), "CALLER_TOKEN_MISSING"},
		"for another":   {boss.do("POST", "/api/v1/tools/invoke", `{"tool_id":"api.me","parameters":{"mode":"x"}}`, "X-User-ID", "ann"), "CALLER_TOKEN_MISSING"},
		"async":         {ann.call("api.me", `{"mode":"x"}`, async), "CALLER_TOKEN_CANNOT_WAIT"},
		"an approval":   {ann.call("api.risky", `{"mode":"x"}`), "CALLER_TOKEN_CANNOT_WAIT"},
		"the other way": {stranger.call("api.kept", `{"mode":"x"}`), "CALLER_TOKEN_MISSING"},
	} {
		if x.a.status != http.StatusFailedDependency || !strings.Contains(x.a.body, "E3402") || !strings.Contains(x.a.body, x.reason) {
			t.Errorf("%s: %s", name, x.a)
		}
	}
	if a, c := e.counts(); a != asked || c != called {
		t.Errorf("%d exchanges and %d requests", a-asked, c-called)
	}
	carol := as(t, k, tokenOf("carol")).call("api.me", `{"mode":"x"}`)
	if !strings.Contains(carol.body, "CALLER_CONSENT_REQUIRED") || !strings.Contains(carol.body, `"oauth_error":"consent_required"`) {
		t.Errorf("consent: %s", carol)
	}
	if asked, now := e.counts(); asked == 0 || now != called {
		t.Errorf("%d requests for carol", now-called)
	}

	// Neither the callers' tokens nor those that they were exchanged for stay anywhere.
	records := root.do("GET", "/api/v1/invocations?page_size=100", "").body + root.do("GET", "/api/v1/audit/events?page_size=100", "").body
	if !strings.Contains(records, "api.kept") {
		t.Error("the records are missing")
	}
	files := map[string]string{"the log": k.Log(), "the records": records}
	k.Close()
	err := filepath.WalkDir(k.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var b []byte
			b, err = os.ReadFile(path)
			files[path] = string(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range files {
		for _, token := range append(tokens, "upstream-token-") {
			if part := token[strings.LastIndexByte(token, '.')+1:]; strings.Contains(text, part) {
				t.Errorf("a token is in %s", where)
			}
		}
	}
}
