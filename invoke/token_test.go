package invoke_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/invoke"
)

// tokenAccess lets a call with the token "good" pass with a grant, and hears of every call.
type tokenAccess struct {
	*fakeAccess
	grant   *toolkeep.Grant
	revoked atomic.Bool
	away    error // why the store has no answer about the key of the token
	heard   []toolkeep.Call
}

func (a *tokenAccess) Authorise(p *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call) access.Decision {
	d := a.fakeAccess.Authorise(p, t, c)
	a.heard = append(a.heard, *c)
	d.Checks = append([]access.Check{{Name: access.CheckToken, Allowed: true}}, d.Checks...)
	switch {
	case a.revoked.Load():
		return access.Decision{Code: toolkeep.TokenRevoked, Reason: "revoked", Checks: []access.Check{{Name: access.CheckToken, Reason: "revoked"}}}
	case c.Token != "" && a.away != nil:
		return access.Decision{Code: toolkeep.RegistryUnavailable, Reason: "try again", Cause: a.away, Checks: []access.Check{{Name: access.CheckToken, Reason: "try again"}}}
	case c.Token == "good":
		d.Grant = a.grant
	default:
		d.Grant = c.Grant
	}
	return d
}

// reacher is the fake executor with what its tools reach.
type reacher struct {
	*fakeExecutor
	reach toolkeep.Reach
}

func (r *reacher) Reach(*toolkeep.Tool) (toolkeep.Reach, error) { return r.reach, nil }

func TestTokensPermissions(t *testing.T) {
	network := func(hosts ...string) *toolkeep.Grant {
		return &toolkeep.Grant{ID: "j", Network: &toolkeep.NetworkGrant{Hosts: hosts, Ports: []int{443}}}
	}
	files := &toolkeep.Grant{ID: "j", Files: &toolkeep.FileGrant{Paths: []string{"/a"}}}
	secrets := func(names ...string) *toolkeep.Grant {
		return &toolkeep.Grant{ID: "j", Secrets: &toolkeep.CredentialGrant{Secrets: names}}
	}
	at := func(hosts ...toolkeep.HostPort) *toolkeep.Reach { return &toolkeep.Reach{Hosts: hosts} }
	for name, c := range map[string]struct {
		grant *toolkeep.Grant
		reach *toolkeep.Reach // nil: the executor does not know
		auth  string
		code  toolkeep.Code
	}{
		"not narrowed":                  {&toolkeep.Grant{ID: "j"}, nil, "", ""},
		"its host":                      {network("*.example.com"), at(toolkeep.HostPort{Host: "api.example.com", Port: 443}), "", ""},
		"another port":                  {network("*.example.com"), at(toolkeep.HostPort{Host: "api.example.com", Port: 80}), "", toolkeep.NetworkDenied},
		"another host":                  {network("example.com"), at(toolkeep.HostPort{Host: "api.example.com", Port: 443}), "", toolkeep.NetworkDenied},
		"one of two hosts":              {network("a"), at(toolkeep.HostPort{Host: "a", Port: 443}, toolkeep.HostPort{Host: "b", Port: 443}), "", toolkeep.NetworkDenied},
		"no host is allowed":            {network(), at(toolkeep.HostPort{Host: "a", Port: 443}), "", toolkeep.NetworkDenied},
		"no host is reached":            {network(), at(), "", ""},
		"a socket, network":             {network("a"), &toolkeep.Reach{Socket: true}, "", toolkeep.NetworkDenied},
		"a socket, files":               {files, &toolkeep.Reach{Socket: true}, "", toolkeep.FilesystemDenied},
		"a database file":               {files, &toolkeep.Reach{OtherFiles: true}, "", toolkeep.FilesystemDenied},
		"files that the executor knows": {files, at(), "", ""},
		"unknown, network":              {network("a"), nil, "", toolkeep.NetworkDenied},
		"unknown, files":                {files, nil, "", toolkeep.FilesystemDenied},
		"unknown, secrets":              {secrets("a"), nil, "", toolkeep.CredentialDenied},
		"no secret":                     {secrets(), at(), "", ""},
		"its secret by name":            {secrets("key"), at(), "secret://key", toolkeep.SecretNotFound}, // the fake store has none
		"its secret by reference":       {secrets("secret://key"), at(), "secret://key", toolkeep.SecretNotFound},
		"another secret":                {secrets("key2"), at(), "secret://key", toolkeep.CredentialDenied},
		"a name is the store's":         {secrets("key"), at(), "env://key", toolkeep.CredentialDenied},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			acc := &tokenAccess{fakeAccess: h.access, grant: c.grant}
			var got *toolkeep.Grant
			h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
				got = x.Grant
				return &toolkeep.Output{Value: "done", HasValue: true}, nil
			}
			h.close()
			h.open(func(conf *invoke.Config) {
				conf.Access = acc
				if c.reach != nil {
					conf.Executors = map[string]toolkeep.Executor{"builtin": &reacher{h.executor, *c.reach}}
				}
			})
			h.tool("plain", func(m *toolkeep.Manifest) {
				if c.auth != "" {
					m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: c.auth}}
				}
				m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}
			})
			if c.auth == "" { // a result of a call without a token is in the cache
				if _, err := h.call(&toolkeep.Call{Tool: "std.plain"}); err != nil {
					t.Fatal(err)
				}
			}
			x, err := h.pipeline.Explain(context.Background(), alice, &toolkeep.Call{Tool: "std.plain", Token: "good"})
			if err != nil || c.auth == "" && x.(*invoke.Explanation).Execute != (c.code == "") {
				t.Errorf("explain says %+v (%v)", x, err)
			}
			res, refused := h.call(&toolkeep.Call{Tool: "std.plain", Token: "good"})
			if c.code != "" {
				wantCode(t, refused, c.code)
				if got != nil {
					t.Error("it was executed")
				}
				return
			}
			if refused != nil || res.Cached && c.grant.Permissions() {
				t.Fatalf("%+v %v", res, refused)
			}
			if !res.Cached && got != c.grant {
				t.Errorf("the executor got %+v", got)
			}
		})
	}
}

// TestWaitingCallStaysNarrowed: the row keeps what the token allows, never its text, and what
// was revoked meanwhile is refused.
func TestWaitingCallStaysNarrowed(t *testing.T) {
	for _, revoked := range []bool{false, true} {
		h := newHarness(t)
		acc := &tokenAccess{fakeAccess: h.access, grant: &toolkeep.Grant{ID: "jti-1", Tenant: "acme", Tools: []string{"std.plain"}, Operations: []string{}}}
		h.close()
		h.open(func(conf *invoke.Config) { conf.Access = acc })
		h.tool("plain")
		res, refused := h.call(&toolkeep.Call{Tool: "std.plain", Async: true, Token: "good"})
		if refused != nil {
			t.Fatal(refused)
		}
		if g := h.row(res.InvocationID).Grant; g == nil || g.ID != "jti-1" || g.Operations == nil || g.Files != nil {
			t.Fatalf("the row has %+v", g)
		}
		acc.revoked.Store(revoked)
		h.work()
		last := acc.heard[len(acc.heard)-1]
		if last.Token != "" || last.Grant == nil || last.Grant.ID != "jti-1" {
			t.Errorf("the worker's call has %+v", last.Grant)
		}
		row := h.row(res.InvocationID)
		if want := map[bool]toolkeep.CallState{false: toolkeep.CallSucceeded, true: toolkeep.CallRefused}[revoked]; row.State != want {
			t.Errorf("revoked %v: %s %s", revoked, row.State, row.Message)
		}
	}
}

// TestChildrenAreNarrowed: a tool that calls a tool passes its token's narrowing on, and cannot
// bring another.
func TestChildrenAreNarrowed(t *testing.T) {
	h := newHarness(t)
	acc := &tokenAccess{fakeAccess: h.access, grant: &toolkeep.Grant{ID: "jti-1"}}
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if strings.HasSuffix(x.Tool.ID, "outer") {
			_, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.inner", Token: "other", Grant: &toolkeep.Grant{ID: "own"}})
			if err != nil {
				return nil, err
			}
		}
		return &toolkeep.Output{Value: "done", HasValue: true}, nil
	}
	h.close()
	h.open(func(conf *invoke.Config) { conf.Access = acc })
	h.tool("outer")
	h.tool("inner")
	if _, err := h.call(&toolkeep.Call{Tool: "std.outer", Token: "good"}); err != nil {
		t.Fatal(err)
	}
	if last := acc.heard[len(acc.heard)-1]; last.Tool != "std.inner" || last.Token != "" || last.Grant == nil || last.Grant.ID != "jti-1" {
		t.Errorf("%+v", last)
	}
}

// TestUnknownKeyIsNotCounted: a token whose key cannot be looked up is refused, but does not count
// towards the block of its caller.
func TestUnknownKeyIsNotCounted(t *testing.T) {
	h := newHarness(t)
	acc := &tokenAccess{fakeAccess: h.access, away: errors.New("no route")}
	h.close()
	h.open(func(conf *invoke.Config) { conf.Access = acc })
	h.tool("plain")
	_, err := h.call(&toolkeep.Call{Tool: "std.plain", Token: "good"})
	wantCode(t, err, toolkeep.RegistryUnavailable)
	if e := toolkeep.AsError(err); !e.Retryable || e.RetryAfter <= 0 || !errors.Is(err, acc.away) {
		t.Errorf("%#v", e)
	}
	if n := acc.denials.Load(); n != 0 {
		t.Errorf("%d denials are counted", n)
	}
	acc.deny.Store(true)
	acc.away = nil
	_, err = h.call(&toolkeep.Call{Tool: "std.plain"})
	wantCode(t, err, toolkeep.PermissionDenied)
	if n := acc.denials.Load(); n != 1 {
		t.Errorf("%d denials are counted, not the one", n)
	}
}

// TestKeptAnswerIsNarrowed: a call whose token has permissions gets the kept answer of a call with
// the same ones alone.
func TestKeptAnswerIsNarrowed(t *testing.T) {
	network := func(jti string, hosts ...string) *toolkeep.Grant {
		return &toolkeep.Grant{ID: jti, Network: &toolkeep.NetworkGrant{Hosts: hosts}}
	}
	for name, c := range map[string]struct {
		first, second *toolkeep.Grant
		code          toolkeep.Code
	}{
		"the same token":               {network("a", "x"), network("a", "x"), ""},
		"a renewed token":              {network("a", "x"), network("b", "x"), ""},
		"no token before":              {nil, network("a", "x"), toolkeep.TokenScopeMismatch},
		"a token without permissions":  {&toolkeep.Grant{ID: "a"}, network("a", "x"), toolkeep.TokenScopeMismatch},
		"another host":                 {network("a", "x", "y"), network("a", "x"), toolkeep.TokenScopeMismatch},
		"files besides":                {network("a", "x"), &toolkeep.Grant{Network: network("", "x").Network, Files: &toolkeep.FileGrant{Paths: []string{}}}, toolkeep.TokenScopeMismatch},
		"no token now":                 {network("a", "x"), nil, ""},
		"no permissions, neither time": {&toolkeep.Grant{ID: "a"}, &toolkeep.Grant{ID: "b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			acc := &tokenAccess{fakeAccess: h.access}
			h.close()
			h.open(func(conf *invoke.Config) {
				conf.Access = acc
				conf.Executors = map[string]toolkeep.Executor{"builtin": &reacher{h.executor, toolkeep.Reach{}}}
			})
			h.tool("plain")
			send := func(g *toolkeep.Grant) (*toolkeep.Result, *toolkeep.Error) {
				acc.grant = g
				call := &toolkeep.Call{Tool: "std.plain", Key: "once"}
				if g != nil {
					call.Token = "good"
				}
				return h.call(call)
			}
			if _, err := send(c.first); err != nil {
				t.Fatal(err)
			}
			res, err := send(c.second)
			if c.code != "" {
				wantCode(t, err, c.code)
				return
			}
			if err != nil || !res.Replayed {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
}

// ranged is a catalogue whose tool has an older version, which cannot be called, and an active one.
type ranged struct {
	*fakeCatalog
	active *toolkeep.Tool
	older  toolkeep.Code
}

func (c ranged) Resolve(_ context.Context, _ *toolkeep.Principal, _, _ string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	if !visible(c.active) {
		return toolkeep.Version{}, nil, toolkeep.NewError(c.older, "the older version")
	}
	return toolkeep.Version{Tool: c.active, Life: toolkeep.Lifecycle{State: toolkeep.Active}}, nil, nil
}

// TestUnseenCallsHaveTheirToken: of a call whose tool its caller does not see, the policy has what the token allows.
func TestUnseenCallsHaveTheirToken(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) {
		c.Access = &tokenAccess{fakeAccess: c.Access.(*fakeAccess), grant: &toolkeep.Grant{ID: "jti-1", Tools: []string{"std.*"}}}
	})
	h.tool("hidden")
	h.access.hidden = "std.hidden"
	h.access.policy = &fakePolicy{decide: func(q *access.Question) (access.Verdict, error) {
		if q.Call.Token != "" || q.Call.Grant == nil {
			return access.Verdict{Allow: true}, nil
		}
		return access.Verdict{Reason: "for " + q.Call.Grant.Tools[0]}, nil
	}}
	_, err := h.call(&toolkeep.Call{Tool: "std.hidden", Token: "good"})
	wantCode(t, err, toolkeep.ToolNotFound)
	if row := h.row(err.InvocationID); row.Code != toolkeep.PolicyDenied || row.Message != "for std.*" {
		t.Errorf("the record has %s %q", row.Code, row.Message)
	}
}

// narrowingAccess is an Access whose tokens show nothing.
type narrowingAccess struct{ *tokenAccess }

func (narrowingAccess) Sees(p *toolkeep.Principal, _ *toolkeep.Call) *toolkeep.Principal {
	own := *p
	own.Narrowed = capability.OfGrant(&toolkeep.Grant{})
	return &own
}

func (narrowingAccess) Visible(p *toolkeep.Principal, _ *toolkeep.Tool) bool {
	return p.Narrowed == nil
}

// TestTokenKeepsWhyItsVersionCannotBeCalled: a version that the token allows and that cannot be called
// says why; what the token alone does not allow is the token's refusal.
func TestTokenKeepsWhyItsVersionCannotBeCalled(t *testing.T) {
	for older, want := range map[toolkeep.Code]toolkeep.Code{toolkeep.DefinitionChanged: toolkeep.DefinitionChanged, toolkeep.ToolBlocked: toolkeep.ToolBlocked,
		toolkeep.ToolNotFound: toolkeep.TokenRevoked, toolkeep.ToolVersionNotFound: toolkeep.TokenRevoked, toolkeep.VersionConflict: toolkeep.TokenRevoked} {
		h := newHarness(t, func(c *invoke.Config) {
			a := &tokenAccess{fakeAccess: c.Access.(*fakeAccess)}
			a.revoked.Store(true) // stands for what Authorise refuses
			c.Access = narrowingAccess{a}
			active := &toolkeep.Tool{ID: "std.x", Version: "2.0.0", Manifest: &toolkeep.Manifest{ToolID: "std.x", Version: "2.0.0", SideEffects: "reads", Risk: "low",
				Execution: toolkeep.ExecutionSpec{Kind: "builtin"}, ParametersSchema: []byte(`{"type":"object"}`)}}
			c.Catalog = ranged{c.Catalog.(*fakeCatalog), active, older}
		})
		_, err := h.call(&toolkeep.Call{Tool: "std.x", Token: "good"})
		wantCode(t, err, want)
	}
}
