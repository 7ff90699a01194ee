package toolkeeptest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// sessions is a remote context service. answer is by tenant, agent and tool.
type sessions struct {
	*httptest.Server
	answer atomic.Pointer[func(tenant, agent, tool string) (int, string)]
	asked  atomic.Int64
	token  atomic.Pointer[string]
}

func newSessions(t *testing.T) *sessions {
	s := &sessions{}
	s.says(func(string, string, string) (int, string) { return 404, "" })
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		token := r.Header.Get("Authorization")
		s.token.Store(&token)
		agent, tool, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/context/agent/"), "/tool/")
		status, body := (*s.answer.Load())(r.Header.Get("X-Tenant-ID"), agent, tool)
		if status == 0 { // hang until the client gives up
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sessions) says(f func(tenant, agent, tool string) (int, string)) { s.answer.Store(&f) }

const (
	agentSecret = "agents-own-s3cret-4711"
	otherSecret = "servers-other-s3cret-0815"
	personal    = "Ada Lovelace of Marylebone"
)

// contextual returns a system with a context service and an HTTP tool that requires the
// agent's credential and returns what it received.
func contextual(t *testing.T, s *sessions, settings map[string]string) *toolkeeptest.Toolkeep {
	t.Setenv("TOOLKEEP_SECRET_AGENT", agentSecret)
	t.Setenv("TOOLKEEP_SECRET_OTHER", otherSecret)
	t.Setenv("TOOLKEEP_SECRET_SESSIONS", "sessions-token-1")
	all := map[string]string{"context.url": s.URL, "context.token": "env://TOOLKEEP_SECRET_SESSIONS", "context.timeout": "5s"}
	for k, v := range settings {
		all[k] = v
	}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: all})
	url, port := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		ok := r.Header.Get("Authorization") == "Bearer "+agentSecret
		fmt.Fprintf(w, `{"ok":%t,"sent":%q}`, ok, r.Header.Get("Authorization"))
	})
	manifest := func(id, secret string) string {
		return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":"1.0.0","description":"A tool of a test.","side_effects":"reads",
			"parameters_schema":{"type":"object"},"permissions":{"network":[{"host":"127.0.0.1","port":%d}],"credentials":["env://TOOLKEEP_SECRET_AGENT"]},
			"auth":[{"type":"bearer","secret":%q}],
			"execution":{"kind":"http","binding":{"method":"GET","server":%q,"path":"/"}}}`, id, port, secret, url)
	}
	k.Publish(manifest("ctx.mine", "context://token"))
	return k
}

func TestContextOfAService(t *testing.T) {
	s := newSessions(t)
	k := contextual(t, s, nil)
	ann, bob, stray := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent")), as(t, k, k.Key(otherTenant, "ann", "agent"))
	s.says(func(tenant, agent, tool string) (int, string) {
		if tenant == "default" && agent == "ann" && tool == "ctx.mine" {
			return 200, `{"credentials":{"token":"env://TOOLKEEP_SECRET_AGENT"},"config":{"timeout":20000,"rate_limit_per_minute":3},"session_context":{"user":"` + personal + `"}}`
		}
		return 404, ""
	})
	got := ann.call("ctx.mine", "{}").success(t)
	if !strings.Contains(got.body, `"ok":true`) || strings.Contains(got.body, agentSecret) {
		t.Errorf("%s", got.body)
	}
	if token := *s.token.Load(); token != "Bearer sessions-token-1" {
		t.Errorf("the service was sent %q", token)
	}
	// Others have no such credential: another agent, and the same name in another
	// tenant.
	bob.call("ctx.mine", "{}").refused(t, toolkeep.SecretNotFound)
	stray.call("ctx.mine", "{}").refused(t, toolkeep.SecretNotFound)

	// explain lists the context's entries without their values.
	explained := ann.call("ctx.mine", "{}", `"dry_run":true`).want(t, 200)
	if !strings.Contains(explained.body, "credentials token; facts user") || strings.Contains(explained.body, "Ada") || strings.Contains(explained.body, "SECRET_AGENT") {
		t.Errorf("%s", explained.body)
	}
	// The agent has its own rate limit.
	a := ann.call("ctx.mine", "{}").success(t)
	for n := 0; n < 50 && a.status == 200; n++ { // a slow machine regains calls meanwhile
		a = ann.call("ctx.mine", "{}")
	}
	a.overLimit(t, toolkeep.RateLimitExceeded, "context")

	k.Close()
	if strings.Contains(k.Log(), "Ada") || strings.Contains(k.Log(), agentSecret) || strings.Contains(k.Log(), "sessions-token-1") {
		t.Errorf("the log shows what a context holds:\n%s", k.Log())
	}
	for name, raw := range files(t, k.Dir) {
		for _, secret := range []string{personal, agentSecret, "sessions-token-1"} {
			if strings.Contains(string(raw), secret) {
				t.Errorf("%s holds %q", name, secret)
			}
		}
	}
}

// TestContextMayNotWiden: the service cannot widen a tool's rights or limits.
func TestContextMayNotWiden(t *testing.T) {
	s := newSessions(t)
	k := contextual(t, s, nil)
	ann, boss := as(t, k, k.Key("default", "ann", "agent")), admin(t, k)
	forget := func() {
		t.Helper()
		boss.do("PUT", "/api/v1/context/agent/ann/tool/*", `{}`).want(t, 204)
	}
	answers := func(body string) {
		t.Helper()
		s.says(func(string, string, string) (int, string) { return 200, body })
		forget()
	}
	// A reference that the tool does not list, whatever the service says.
	answers(`{"credentials":{"token":"env://TOOLKEEP_SECRET_OTHER"}}`)
	if a := ann.call("ctx.mine", "{}").refused(t, toolkeep.CredentialDenied); strings.Contains(a.body, otherSecret) {
		t.Errorf("%s", a.body)
	}
	// Limits above the tool's own, and fields that a context does not have.
	k.Publish(toolkeeptest.Manifest("ctx.slow", "1.0.0", "wait", reads, `"retry":{"policy":"none"}`))
	answers(`{"config":{"timeout":86400000,"retry_max_attempts":99},"permissions":{"credentials":["env://TOOLKEEP_SECRET_OTHER"]},"roles":["admin"]}`)
	explained := ann.call("ctx.slow", `{"duration_ms":1}`, `"dry_run":true`).want(t, 200)
	if !strings.Contains(explained.body, "timeout of 86400000 ms has no effect, the tool's own is 30000 ms; retry_max_attempts of 99 has no effect") {
		t.Errorf("%s", explained.body)
	}
	ann.call("ctx.mine", "{}").refused(t, toolkeep.SecretNotFound)
	// A lower limit applies, even if the call asks for more.
	answers(`{"config":{"timeout":50}}`)
	ann.call("ctx.slow", `{"duration_ms":20000}`, `"timeout_seconds":20`).failed(t, toolkeep.Timeout)
	// A literal secret instead of a reference is not a valid context.
	answers(`{"credentials":{"token":"` + otherSecret + `"}}`)
	if a := ann.call("ctx.mine", "{}").refused(t, toolkeep.PolicyEngineUnavailable); strings.Contains(a.body, otherSecret) {
		t.Errorf("%s", a.body)
	}
	k.Close()
	if strings.Contains(k.Log(), otherSecret) {
		t.Errorf("the log:\n%s", k.Log())
	}
}

// TestContextServiceIsDown covers both settings for a service that does not respond.
func TestContextServiceIsDown(t *testing.T) {
	down := map[string]func(string, string, string) (int, string){
		"an error":   func(string, string, string) (int, string) { return 503, "down" },
		"wrong JSON": func(string, string, string) (int, string) { return 200, "<html>" },
		"it hangs":   func(string, string, string) (int, string) { return 0, "" },
	}
	for name, f := range down {
		t.Run(name, func(t *testing.T) {
			s := newSessions(t)
			s.says(f)
			k := contextual(t, s, map[string]string{"context.timeout": "100ms"})
			ann := as(t, k, k.Key("default", "ann", "agent"))
			a := ann.call("std.echo", `{"a":1}`).want(t, 503).refused(t, toolkeep.PolicyEngineUnavailable)
			if a.text(t, "details", "reason") != "CONTEXT_UNAVAILABLE" || a.at(t, "retryable") != true || a.header.Get("Retry-After") == "" {
				t.Errorf("%s", a)
			}
			// A refused call leaves its idempotency key free.
			ann.call("std.note_append", `{"text":"x"}`, keyed("k")).refused(t, toolkeep.PolicyEngineUnavailable)
		})
	}
	t.Run("and is not required", func(t *testing.T) {
		s := newSessions(t)
		s.says(down["an error"])
		k := contextual(t, s, map[string]string{"context.required": "false"})
		ann, boss := as(t, k, k.Key("default", "ann", "agent")), admin(t, k)
		ann.call("std.echo", `{"a":1}`).success(t)
		ann.call("ctx.mine", "{}").refused(t, toolkeep.SecretNotFound)
		// The store's context still works, and the next call sees it.
		boss.do("PUT", "/api/v1/context/agent/ann/tool/ctx.mine", `{"credentials":{"token":"env://TOOLKEEP_SECRET_AGENT"}}`).want(t, 204)
		if a := ann.call("ctx.mine", "{}").success(t); !strings.Contains(a.body, `"ok":true`) {
			t.Errorf("%s", a.body)
		}
		boss.do("DELETE", "/api/v1/context/agent/ann/tool/ctx.mine", "").want(t, 204)
		ann.call("ctx.mine", "{}").refused(t, toolkeep.SecretNotFound)
	})
}

func TestContextByREST(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	boss, ann := admin(t, k), as(t, k, k.Key("default", "ann", "agent"))
	otherBoss := as(t, k, k.Key(otherTenant, "boss", "admin"))
	const at = "/api/v1/context/agent/ann/tool/std.echo"
	boss.do("GET", at, "").want(t, 404).refused(t, toolkeep.ResourceNotFound)
	boss.do("PUT", at, `{"config":{"timeout":1.5},"nonsense":1}`).want(t, 400).refused(t, toolkeep.InputValidationFailed)
	boss.do("PUT", at, `{"config":{"timeout":100},"session_context":{"user":"`+personal+`"}}`).want(t, 204)
	if a := boss.do("GET", at, "").want(t, 200); a.body != `{"config":{"timeout":100},"session_context":{"user":"`+personal+`"}}`+"\n" && strings.TrimSpace(a.body) != `{"config":{"timeout":100},"session_context":{"user":"`+personal+`"}}` {
		t.Errorf("%s", a.body)
	}
	// An agent can neither read nor change contexts, not even its own; another tenant
	// has its own.
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		body := ""
		if method == "PUT" {
			body = "{}"
		}
		ann.do(method, at, body).want(t, 403).refused(t, toolkeep.PermissionDenied)
	}
	otherBoss.do("GET", at, "").want(t, 404)
	otherBoss.do("DELETE", at, "").want(t, 404)
	boss.do("GET", at, "").want(t, 200)
	boss.do("DELETE", at, "").want(t, 204)
	boss.do("DELETE", at, "").want(t, 404)
}

// TestContextOnTwoNodes sets a context on one node and calls on the other.
func TestContextOnTwoNodes(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2)
	key := nodes[0].Key("default", "boss", "admin")
	a, b := as(t, nodes[0], key), as(t, nodes[1], key)
	nodes[1].AwaitKey("default", key)
	const at = "/api/v1/context/agent/boss/tool/std.echo"
	a.do("PUT", at, `{"config":{"rate_limit_per_minute":1}}`).want(t, 204)
	within(t, time.Second, "the other node has the context", func() bool { return b.do("GET", at, "").status == 200 })
	b.call("std.echo", "{}").success(t)
	b.call("std.echo", "{}").overLimit(t, toolkeep.RateLimitExceeded, "context")
	b.do("DELETE", at, "").want(t, 204)
	within(t, time.Second, "the first node knows that it is gone", func() bool { return a.do("GET", at, "").status == 404 })
}
