package invoke_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/secret"
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
