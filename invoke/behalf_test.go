package invoke_test

import (
	"context"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/blob"
)

// TestCallerToken: a tool that acts with its caller's own token runs only for a call that has it and need not wait.
func TestCallerToken(t *testing.T) {
	ann := func(token string) *toolkeep.Principal {
		p := *alice
		p.Subject, p.KeyID = "ann", ""
		if token != "" {
			p.Token = toolkeep.NewCallerToken(token, time.Now().Add(time.Hour))
		}
		return &p
	}
	exchange := func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "oauth2_token_exchange", Secret: "env://CLIENT", TokenURL: "https://x.example"}}
	}
	or := func(m *toolkeep.Manifest) {
		exchange(m)
		m.Auth = append(m.Auth, toolkeep.AuthSpec{Type: "bearer", Secret: "env://OWN"})
	}
	also := func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "api_key", Name: "X", Secret: "env://K", Settings: map[string]any{"also": []any{map[string]any{"type": "oauth2_identity_assertion", "secret": "env://CLIENT"}}}}}
	}
	high := func(m *toolkeep.Manifest) { m.Risk = "high" }
	for name, x := range map[string]struct {
		tool   []func(*toolkeep.Manifest)
		token  string
		call   toolkeep.Call
		reason string // "" succeeds
	}{
		"with it":                      {[]func(*toolkeep.Manifest){exchange}, "t", toolkeep.Call{}, ""},
		"that writes":                  {[]func(*toolkeep.Manifest){exchange, writes}, "t", toolkeep.Call{Key: "k"}, ""},
		"without":                      {[]func(*toolkeep.Manifest){exchange}, "", toolkeep.Call{}, "CALLER_TOKEN_MISSING"},
		"as one of two":                {[]func(*toolkeep.Manifest){also}, "", toolkeep.Call{}, "CALLER_TOKEN_MISSING"},
		"or a token of the tool's own": {[]func(*toolkeep.Manifest){or}, "", toolkeep.Call{}, ""},
		"async, or its own":            {[]func(*toolkeep.Manifest){or}, "t", toolkeep.Call{Async: true}, "CALLER_TOKEN_CANNOT_WAIT"},
		"async":                        {[]func(*toolkeep.Manifest){exchange}, "t", toolkeep.Call{Async: true}, "CALLER_TOKEN_CANNOT_WAIT"},
		"high risk":                    {[]func(*toolkeep.Manifest){exchange, high}, "t", toolkeep.Call{}, "CALLER_TOKEN_CANNOT_WAIT"},
		"approval asked for":           {[]func(*toolkeep.Manifest){also}, "t", toolkeep.Call{RequireApproval: true}, "CALLER_TOKEN_CANNOT_WAIT"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, "")
			tool := d.tool("x", x.tool...)
			var ran atomic.Int32
			d.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
				ran.Add(1)
				return &toolkeep.Output{Value: "fine", HasValue: true}, nil
			}
			c := x.call
			c.Tool = tool.ID
			explained, err := d.pipeline.Explain(t.Context(), ann(x.token), &c)
			if err != nil {
				t.Fatal(err)
			}
			if e := explained.(*invoke.Explanation); e.Execute != (x.reason == "") {
				t.Errorf("explained: %+v", e)
			}
			res, err := d.pipeline.Invoke(t.Context(), ann(x.token), &c)
			if x.reason == "" {
				if err != nil || res.Error != nil || ran.Load() != 1 {
					t.Fatalf("%+v %v", res, err)
				}
				return
			}
			e := toolkeep.AsError(err)
			if e == nil || e.Code != toolkeep.SecretAccessDenied || e.Details["reason"] != x.reason || !e.NothingSent || e.Retryable || ran.Load() != 0 {
				t.Fatalf("%+v %v, ran %d times", res, err, ran.Load())
			}
			d.work()
			if ran.Load() != 0 || !d.row(e.InvocationID).State.Ended() {
				t.Errorf("the call waits: %+v", d.row(e.InvocationID))
			}
		})
	}
}

// TestCallerTokenIsNotKept: a call that was interrupted, and one that was queued before its tool wanted the token, end.
func TestCallerTokenIsNotKept(t *testing.T) {
	h := newHarness(t)
	tool := h.tool("x")
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		t.Error("it ran")
		return &toolkeep.Output{}, nil
	}
	p := *alice
	p.Token = toolkeep.NewCallerToken("eyJ.raw-token.sig", time.Now().Add(time.Hour))
	res, err := h.pipeline.Invoke(t.Context(), &p, &toolkeep.Call{Tool: tool.ID, Async: true})
	if err != nil {
		t.Fatal(err)
	}
	h.tool("x", func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "oauth2_token_exchange", Secret: "env://CLIENT"}}
	})
	h.work()
	if v := h.row(res.InvocationID); v.Code != toolkeep.SecretAccessDenied || !strings.Contains(v.Message, "not kept") {
		t.Errorf("%s %s %s", v.State, v.Code, v.Message)
	}
	h.everyFile(func(name, text string) {
		if strings.Contains(text, "raw-token") {
			t.Errorf("the token is in %s", name)
		}
	})
}

// TestCallerTokenCache: a result that a caller's token let see is for that token alone, also where the tool's results are public.
func TestCallerTokenCache(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) { c.Secrets = tokenSecrets{} })
	tool := h.tool("x", func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "oauth2_token_exchange", Secret: "env://CLIENT"}}
		m.Cache, m.Result = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}, &toolkeep.ResultSpec{Public: true}
	})
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		return &toolkeep.Output{Value: x.Credentials[0].Value, HasValue: true}, nil
	}
	for i, token := range []string{"token-of-ann", "token-of-bob", "token-of-ann", "next-of-ann"} {
		p := *alice
		p.Token = toolkeep.NewCallerToken(token, time.Now().Add(time.Hour))
		res, err := h.pipeline.Invoke(t.Context(), &p, &toolkeep.Call{Tool: tool.ID})
		if err != nil || res.Cached != (i == 2) || len(res.Secrets) != 1 && !res.Cached {
			t.Errorf("%d: %+v %v", i, res, err)
		}
	}
}

// tokenSecrets gives each caller what it came with.
type tokenSecrets struct{ fakeSecrets }

func (tokenSecrets) Credential(_ context.Context, p *toolkeep.Principal, _ *toolkeep.Manifest, _ toolkeep.AuthSpec, _ bool) (secret.Equipped, error) {
	return secret.Equipped{Value: secret.Value{Bytes: []byte("for " + p.Token.Reveal())}}, nil
}

// TestCallerTokenOfChildren: what a tool calls acts for the same caller.
func TestCallerTokenOfChildren(t *testing.T) {
	h := newHarness(t)
	below := h.tool("below", func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "oauth2_token_exchange", Secret: "env://CLIENT"}}
	})
	above := h.tool("above")
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == below.ID {
			return &toolkeep.Output{Value: "below", HasValue: true}, nil
		}
		res, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: below.ID})
		if err != nil {
			return nil, err
		}
		if res.Error != nil {
			return nil, res.Error
		}
		return &toolkeep.Output{Value: string(res.Output), HasValue: true}, nil
	}
	for token, code := range map[string]toolkeep.Code{"t": "", "": toolkeep.SecretAccessDenied} {
		p := *alice
		if token != "" {
			p.Token = toolkeep.NewCallerToken(token, time.Now().Add(time.Hour))
		}
		res, err := h.pipeline.Invoke(t.Context(), &p, &toolkeep.Call{Tool: above.ID})
		got := toolkeep.AsError(err)
		if res != nil {
			got = res.Error
		}
		if got == nil && code != "" || got != nil && got.Code != code {
			t.Errorf("with %q: %+v %v", token, res, err)
		}
	}
}

// TestCallerTokenRefused: a call that came with a token never takes an alternative after one that needs it, whatever
// failed there, and no cached result of such an alternative. One without a token does.
func TestCallerTokenRefused(t *testing.T) {
	own := toolkeep.AuthSpec{Type: "bearer", Secret: "env://OWN"}
	exchange := toolkeep.AuthSpec{Type: "oauth2_token_exchange", Secret: "env://CLIENT", TokenURL: "https://x.example"}
	assertion := toolkeep.AuthSpec{Type: "oauth2_identity_assertion", Secret: "env://CLIENT", TokenURL: "https://x.example"}
	missing := toolkeep.AuthSpec{Type: "bearer", Secret: "env://MISSING"}
	absent := toolkeep.AuthSpec{Type: "oauth2_token_exchange", Secret: "env://MISSING", TokenURL: "https://x.example"}
	refused := func(reason string) *toolkeep.Error {
		return toolkeep.NewError(toolkeep.SecretAccessDenied, "the authorization server refuses").With("reason", reason)
	}
	for name, x := range map[string]struct {
		auth []toolkeep.AuthSpec
		err  *toolkeep.Error
	}{
		"refused":              {[]toolkeep.AuthSpec{exchange, own}, refused("CALLER_TOKEN_REFUSED")},
		"expired":              {[]toolkeep.AuthSpec{exchange, own}, refused("CALLER_TOKEN_EXPIRED")},
		"no such target":       {[]toolkeep.AuthSpec{exchange, own}, refused("TARGET_REFUSED")},
		"consent":              {[]toolkeep.AuthSpec{assertion, own}, refused("CALLER_CONSENT_REQUIRED")},
		"denied":               {[]toolkeep.AuthSpec{exchange, own}, toolkeep.NewError(toolkeep.SecretAccessDenied, "no").With("oauth_error", "access_denied")},
		"unreachable":          {[]toolkeep.AuthSpec{exchange, own}, toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the endpoint is unreachable")},
		"after one that fails": {[]toolkeep.AuthSpec{missing, exchange, own}, refused("CALLER_TOKEN_REFUSED")},
		"without a client":     {[]toolkeep.AuthSpec{missing, absent, own}, toolkeep.NewError(toolkeep.SecretNotFound, "")},
		"with a next exchange": {[]toolkeep.AuthSpec{exchange, assertion, own}, refused("CALLER_TOKEN_REFUSED")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(c *invoke.Config) { c.Secrets = refusingSecrets{err: x.err} })
			tool := h.tool("x", func(m *toolkeep.Manifest) {
				m.Auth, m.Cache = x.auth, &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}
			})
			var sent []string
			h.executor.do = func(_ context.Context, e *toolkeep.Execution) (*toolkeep.Output, error) {
				sent = append(sent, e.Credentials[0].Spec.Secret)
				return &toolkeep.Output{Value: "fine", HasValue: true}, nil
			}
			if res, err := h.call(&toolkeep.Call{Tool: tool.ID}); err != nil || res.Error != nil || len(sent) != 1 || sent[0] != own.Secret {
				t.Fatalf("without a token: %+v %v, sent %v", res, err, sent)
			}
			p := *alice
			p.Token = toolkeep.NewCallerToken("t", time.Now().Add(time.Hour))
			res, err := h.pipeline.Invoke(t.Context(), &p, &toolkeep.Call{Tool: tool.ID})
			e := toolkeep.AsError(err)
			if e == nil || e.Code != x.err.Code || e.Details["reason"] != x.err.Details["reason"] || !e.NothingSent || len(sent) != 1 {
				t.Errorf("with a token: %+v %v, sent %v", res, err, sent)
			}
		})
	}
}

// refusingSecrets gives no token of a caller.
type refusingSecrets struct {
	fakeSecrets
	err *toolkeep.Error
}

func (s refusingSecrets) Credential(ctx context.Context, p *toolkeep.Principal, m *toolkeep.Manifest, spec toolkeep.AuthSpec, fresh bool) (secret.Equipped, error) {
	got, err := s.fakeSecrets.Credential(ctx, p, m, spec, fresh)
	if err == nil && spec.NeedsCaller() {
		e := *s.err
		return secret.Equipped{}, &e
	}
	return got, err
}

// TestCallerTokenBlobs: what a caller's token let see is stored for that caller alone, also where the tool's results
// are public.
func TestCallerTokenBlobs(t *testing.T) {
	exchange := toolkeep.AuthSpec{Type: "oauth2_token_exchange", Secret: "env://CLIENT", TokenURL: "https://x.example"}
	own := toolkeep.AuthSpec{Type: "bearer", Secret: "env://OWN"}
	missing := toolkeep.AuthSpec{Type: "bearer", Secret: "env://MISSING"}
	for name, x := range map[string]struct {
		auth    []toolkeep.AuthSpec
		server  bool
		token   string
		subject string
	}{
		"exchange":               {[]toolkeep.AuthSpec{exchange}, false, "t", alice.Subject},
		"exchange, else its own": {[]toolkeep.AuthSpec{exchange, own}, false, "t", alice.Subject},
		"its own, else exchange": {[]toolkeep.AuthSpec{missing, exchange}, false, "t", alice.Subject},
		"its server's":           {nil, true, "t", alice.Subject},
		"its own":                {[]toolkeep.AuthSpec{exchange, own}, false, "", ""},
		"none":                   {nil, false, "t", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			if x.server {
				h.config.Executors["builtin"] = actor{h.executor}
			}
			tool := h.tool("x", func(m *toolkeep.Manifest) {
				m.Auth, m.Result = x.auth, &toolkeep.ResultSpec{Public: true, MaxOutputBytes: 1 << 10}
			})
			h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
				return &toolkeep.Output{Value: strings.Repeat("long ", 1000), HasValue: true}, nil
			}
			p := *alice
			if x.token != "" {
				p.Token = toolkeep.NewCallerToken(x.token, time.Now().Add(time.Hour))
			}
			res, err := h.pipeline.Invoke(t.Context(), &p, &toolkeep.Call{Tool: tool.ID})
			if err != nil || len(res.Attachments) != 1 {
				t.Fatalf("%+v %v", res, err)
			}
			b, r, err := h.config.Blobs.(*blob.Dir).Open(t.Context(), path.Base(res.Attachments[0].URL))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if b.Subject != x.subject {
				t.Errorf("the blob is for %q, want %q", b.Subject, x.subject)
			}
		})
	}
}

// actor is an executor whose tools act for their caller by their server.
type actor struct{ *fakeExecutor }

func (actor) ActsForCaller(*toolkeep.Principal, *toolkeep.Tool) bool { return true }

// TestCallerTokenCacheOfServers: the cache tells tokens apart where the server acts for the caller, whatever the
// tool's own auth is.
func TestCallerTokenCacheOfServers(t *testing.T) {
	for name, auth := range map[string][]toolkeep.AuthSpec{"no auth": nil, "none": {{Type: "none"}}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.config.Executors["builtin"] = actor{h.executor}
			tool := h.tool("x", func(m *toolkeep.Manifest) {
				m.Auth, m.Cache = auth, &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}
			})
			for i, token := range []string{"first", "second", "first"} {
				p := *alice
				p.Token = toolkeep.NewCallerToken(token, time.Now().Add(time.Hour))
				res, err := h.pipeline.Invoke(t.Context(), &p, &toolkeep.Call{Tool: tool.ID})
				if err != nil || res.Cached != (i == 2) {
					t.Errorf("%d: %+v %v", i, res, err)
				}
			}
		})
	}
}
