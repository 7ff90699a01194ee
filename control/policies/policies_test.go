package policies

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
)

var began = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) // a Monday

// fakeStore keeps nothing.
type fakeStore struct{ toolkeep.Watcher }

func (fakeStore) Apply(context.Context, ...toolkeep.Change) error { return nil }
func (fakeStore) Watch(ctx context.Context, _ int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		<-ctx.Done()
		yield(toolkeep.Committed{}, toolkeep.ErrClosed)
	}
}
func (fakeStore) Documents(context.Context, string) ([]toolkeep.Document, int64, error) {
	return nil, 0, nil
}
func (fakeStore) Document(context.Context, string, string, string) (toolkeep.Document, error) {
	return toolkeep.Document{}, toolkeep.ErrNotFound
}

// fakeCatalog has one version of each tool.
type fakeCatalog []*toolkeep.Tool

func (f fakeCatalog) Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	for _, t := range f {
		if t.ID == tool && (rng == "" || rng == t.Version) && (t.Tenant == "" || t.Tenant == p.Tenant) && (visible == nil || visible(t)) {
			return toolkeep.Version{Tool: t}, nil, nil
		}
	}
	return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "no tool %s", tool)
}

func (f fakeCatalog) Describe(_ context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	return f.Find(p, tool, rng, visible)
}

func (f fakeCatalog) List(p *toolkeep.Principal, q catalog.Filter, visible func(*toolkeep.Tool) bool) (page []catalog.Summary, total int) {
	for _, t := range f {
		if (t.Tenant == "" || t.Tenant == p.Tenant) && visible(t) {
			if total >= q.Offset && len(page) < q.Limit {
				page = append(page, catalog.Summary{ToolID: t.ID, LatestVersion: t.Version})
			}
			total++
		}
	}
	return page, total
}

// fakeCalls are recorded calls, the newest first.
type fakeCalls []*toolkeep.Invocation

func (f fakeCalls) List(_ context.Context, q toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
	var all []*toolkeep.Invocation
	for _, v := range f {
		if v.Tenant == q.Tenant && v.CreatedAt.Before(q.Until) {
			all = append(all, v)
		}
	}
	from := min(q.Offset, len(all))
	return all[from:min(from+q.Limit, len(all))], len(all), nil
}

func tool(id, risk string, change ...func(*toolkeep.Manifest)) *toolkeep.Tool {
	m := &toolkeep.Manifest{ToolID: id, Version: "1.0.0", Risk: risk, SideEffects: "reads", Tags: []string{"open"}}
	for _, f := range change {
		f(m)
	}
	return &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: "sha256:" + id, Manifest: m}
}

// newSystem has keys of the tenant default and one of another, tools of each risk, and a policy.
func newSystem(t *testing.T, rules string, calls ...*toolkeep.Invocation) *Policies {
	t.Helper()
	key := func(id, tenant string, change func(*toolkeep.APIKey), roles ...string) toolkeep.APIKey {
		k := toolkeep.APIKey{ID: id, Subject: strings.TrimRight(id, "0123456789"), Tenant: tenant, Roles: roles, CreatedAt: began}
		if change != nil {
			change(&k)
		}
		return k
	}
	keys := []toolkeep.APIKey{
		key("admin", "default", nil, "admin"), key("ann", "default", nil, "agent"), key("bob", "default", nil, "auditor"),
		key("cat", "default", func(k *toolkeep.APIKey) { k.Scope = []string{"mail.*"} }, "agent"),
		key("dan", "default", func(k *toolkeep.APIKey) { k.RevokedAt = began }, "agent"),
		key("eve", "default", func(k *toolkeep.APIKey) { k.ExpiresAt = began.Add(-1) }, "agent"),
		key("mallory1", "default", nil, "agent"), key("mallory2", "default", nil, "admin"),
		key("stranger", "acme", nil, "admin"),
	}
	c := access.Config{Store: fakeStore{}, Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return keys, 0, nil }}
	config := Config{Catalog: fakeCatalog{tool("mail.send", "medium"), tool("shop.order", "high"), tool("std.hash", "low")}, Calls: fakeCalls(calls),
		Timeout: 20 * time.Second, Clock: func() time.Time { return began }}
	var err error
	if rules != "" {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "p.rego"), []byte("package toolkeep\n\n"+rules), 0o600); err != nil {
			t.Fatal(err)
		}
		if config.Engine, err = policy.New(t.Context(), policy.Config{Path: dir, Timeout: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
		c.Policy = config.Engine
	}
	a, err := access.New(c)
	if err == nil {
		err = a.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	approvalRules, err := approval.ParseRules([]byte("rules: [{name: mails, tools: [\"mail.*\"], roles: [agent], required: true}]"), approval.Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	if config.Approvals, err = approval.New(approval.Config{Store: fakeStore{}, Rules: approvalRules}); err != nil {
		t.Fatal(err)
	}
	config.Access = a
	return New(config)
}

var admin = &toolkeep.Principal{Subject: "admin", Tenant: "default", Roles: []string{"admin"}, Permissions: []string{"*"}}

func said(r *Rights) (all []string) {
	for _, one := range r.List {
		all = append(all, strings.TrimRight(fmt.Sprintf("%s %s %s %s %s %s", one.KeyID, one.ToolID, one.Decision, one.Code, one.Check, one.Rule), " "))
	}
	return all
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const rules = `deny contains {"rule": "trust", "reason": "not you"} if input.caller.subject == "mallory"

require_approval contains {"rule": "hash", "reason": "look first"} if {
	input.tool.id == "std.hash"
	input.caller.subject == "cat"
}
`

// TestWho: of each valid key of the tenant, what roles, scope, policy and approvals decide.
func TestWho(t *testing.T) {
	s := newSystem(t, rules)
	r, err := s.Who(t.Context(), admin, "mail.send", "", 0, 50)
	if err != nil || r.Total != 6 || !slices.Equal(r.Reads, []string{"caller.subject", "tool"}) {
		t.Fatalf("%+v %v", r, err)
	}
	want(t, said(r),
		"admin mail.send allowed",
		"ann mail.send needs_approval", "bob mail.send denied E3201 roles", "cat mail.send needs_approval",
		"mallory1 mail.send hidden E3001 policy trust", "mallory2 mail.send denied E3202 policy trust") // an administrator sees all
	r, err = s.Who(t.Context(), admin, "shop.order", "1.0.0", 1, 3)
	if err != nil || r.Total != 6 {
		t.Fatal(err)
	}
	want(t, said(r), "ann shop.order hidden E3001 roles", "bob shop.order denied E3201 roles", "cat shop.order hidden E3001 scope")
	for tool, code := range map[string]toolkeep.Code{"no.such": toolkeep.ToolNotFound} {
		if _, err := s.Who(t.Context(), admin, tool, "", 0, 50); toolkeep.AsError(err).Code != code {
			t.Errorf("%s: %v", tool, err)
		}
	}
	for _, p := range []*toolkeep.Principal{{Tenant: "default", Permissions: []string{toolkeep.PermOperate, toolkeep.PermInvocations}}, {Tenant: "default"}} {
		if _, err := s.Who(t.Context(), p, "std.hash", "", 0, 50); toolkeep.AsError(err).Code != toolkeep.PermissionDenied {
			t.Errorf("%v: %v", p.Permissions, err)
		}
		if _, err := s.What(t.Context(), p, "ann", "", 0, 50); toolkeep.AsError(err).Code != toolkeep.PermissionDenied {
			t.Errorf("%v: %v", p.Permissions, err)
		}
	}
	stranger := &toolkeep.Principal{Subject: "stranger", Tenant: "acme", Roles: []string{"admin"}, Permissions: []string{"*"}}
	if r, err = s.Who(t.Context(), stranger, "std.hash", "", 0, 50); err != nil {
		t.Fatal(err)
	}
	want(t, said(r), "stranger std.hash allowed")
}

// TestWhat: of each tool that is seen, what a subject's valid keys may do.
func TestWhat(t *testing.T) {
	s := newSystem(t, rules)
	for _, c := range []struct {
		subject, key  string
		offset, limit int
		total         int
		rights        []string
		code          toolkeep.Code
	}{
		{subject: "ann", limit: 50, total: 3, rights: []string{"ann mail.send needs_approval", "ann shop.order hidden E3001 roles", "ann std.hash allowed"}},
		{subject: "cat", offset: 2, limit: 1, total: 3, rights: []string{"cat std.hash hidden E3001 scope"}},
		{subject: "admin", limit: 50, total: 3, rights: []string{"admin mail.send allowed", "admin shop.order needs_approval", "admin std.hash allowed"}},
		{subject: "mallory", limit: 1, total: 3, rights: []string{"mallory1 mail.send hidden E3001 policy trust", "mallory2 mail.send denied E3202 policy trust"}},
		{subject: "mallory", key: "mallory1", offset: 1, limit: 1, total: 3, rights: []string{"mallory1 shop.order hidden E3001 roles"}},
		{subject: "dan", limit: 50, code: toolkeep.ResourceNotFound},
		{subject: "eve", limit: 50, code: toolkeep.ResourceNotFound},
		{subject: "stranger", limit: 50, code: toolkeep.ResourceNotFound},
		{subject: "ann", key: "bob", limit: 50, code: toolkeep.ResourceNotFound},
	} {
		r, err := s.What(t.Context(), admin, c.subject, c.key, c.offset, c.limit)
		if c.code != "" {
			if toolkeep.AsError(err).Code != c.code {
				t.Errorf("%s: %v", c.subject, err)
			}
			continue
		}
		if err != nil || r.Total != c.total {
			t.Errorf("%s: %d %v", c.subject, r.Total, err)
		}
		want(t, said(r), c.rights...)
	}
	s = newSystem(t, `allow if to_number(input.caller.subject) > 0`)
	r, err := s.What(t.Context(), admin, "ann", "", 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	want(t, said(r), "ann std.hash undecided E3206 policy")
}

// recorded is a call of ann's key that was made at noon.
func recorded(id string, change ...func(*toolkeep.Invocation)) *toolkeep.Invocation {
	v := &toolkeep.Invocation{ID: id, Tenant: "default", Subject: "ann", KeyID: "ann", ToolID: "std.hash", Version: "1.0.0", Digest: "sha256:std.hash",
		State: toolkeep.CallSucceeded, ArgsSize: 20, Face: "rest", Task: "OPS-1", CreatedAt: began.Add(-time.Minute)}
	for _, f := range change {
		f(v)
	}
	return v
}

// quoted are arguments, and what was recorded of them.
func quoted(arguments, input string) func(*toolkeep.Invocation) {
	tree, err := canon.ParseObject([]byte(arguments), canon.Limits{Bytes: 1000, Depth: 10, Properties: 10, Elements: 10})
	if err != nil {
		panic(err)
	}
	return func(v *toolkeep.Invocation) { v.ArgsHash, v.Input = canon.Hash(tree), []byte(input) }
}

// TestReplay: recorded calls are decided again by another policy with what was kept of them, at the time
// that they were made.
func TestReplay(t *testing.T) {
	refused := func(code toolkeep.Code) func(*toolkeep.Invocation) {
		return func(v *toolkeep.Invocation) { v.State, v.Code = toolkeep.CallRefused, code }
	}
	as := func(subject, key string) func(*toolkeep.Invocation) {
		return func(v *toolkeep.Invocation) { v.Subject, v.KeyID = subject, key }
	}
	mail := func(v *toolkeep.Invocation) { v.ToolID, v.Digest = "mail.send", "sha256:mail.send" }
	calls := []*toolkeep.Invocation{
		recorded("ok"), recorded("bad", refused(toolkeep.PolicyDenied)), recorded("unsure", refused(toolkeep.PolicyEngineUnavailable)),
		recorded("roles", refused(toolkeep.PermissionDenied)), recorded("token", refused(toolkeep.TokenRevoked)), recorded("unknown", refused(toolkeep.ToolNotFound), func(v *toolkeep.Invocation) { v.Version = "" }),
		recorded("mail", mail, func(v *toolkeep.Invocation) { v.Approved = "x" }), recorded("asked", func(v *toolkeep.Invocation) { v.Approved = "x" }),
		recorded("revoked", as("dan", "dan")), recorded("oauth", as("olga", "")), recorded("empty", func(v *toolkeep.Invocation) { v.ArgsSize = 2 }),
		recorded("gone", func(v *toolkeep.Invocation) { v.Digest = "sha256:other" }), recorded("night", func(v *toolkeep.Invocation) { v.CreatedAt = began.Add(-12 * time.Hour) }),
		recorded("foreign", func(v *toolkeep.Invocation) { v.Tenant = "acme" }), recorded("late", func(v *toolkeep.Invocation) { v.CreatedAt = began.Add(time.Minute) }),
		recorded("fault", refused(toolkeep.InputValidationFailed)),
		recorded("proxied", as("pia", ""), func(v *toolkeep.Invocation) { v.Method = access.MethodProxy }),
		recorded("quoted", quoted(`{"n":2}`, `{"n":2}`)), recorded("redacted", quoted(`{"n":2,"to":"ann@example.com"}`, `{"n":2,"to":"[email]"}`)),
		recorded("addressed", func(v *toolkeep.Invocation) { v.Addr, v.ArgsSize = "192.0.2.1", 2 }),
	}
	s := newSystem(t, "", calls...)
	all := []string{"quoted", "redacted", "addressed", "ok", "bad", "unsure", "mail", "asked", "revoked", "oauth", "empty", "night", "fault", "proxied"} // that a policy which reads nothing decides
	for _, c := range []struct {
		name, rules string
		same        []string          // of all
		changed     map[string]string // id: was, would be
		missing     map[string]string
	}{
		{name: "allows", rules: "allow := true", changed: map[string]string{"bad": "denied allowed", "unsure": "undecided allowed", "asked": "needs_approval allowed"}},
		{name: "denies ann", rules: `deny contains "no" if input.caller.subject == "ann"`, changed: map[string]string{
			"quoted": "allowed denied", "redacted": "allowed denied", "addressed": "allowed denied",
			"ok": "allowed denied", "unsure": "undecided denied", "mail": "needs_approval denied", "asked": "needs_approval denied", "empty": "allowed denied",
			"night": "allowed denied", "fault": "allowed denied"}},
		{name: "obliges by the time", rules: "allow := true\n\nrequire_approval contains \"late\" if input.time.hour < 6", changed: map[string]string{
			"bad": "denied allowed", "unsure": "undecided allowed", "asked": "needs_approval allowed", "night": "allowed needs_approval"}},
		{name: "hides", rules: "allow := true\n\nvisible if input.tool.id != \"mail.send\"", changed: map[string]string{
			"bad": "denied allowed", "unsure": "undecided allowed", "asked": "needs_approval allowed", "mail": "needs_approval hidden"}},
		{name: "cannot answer", rules: `allow if to_number(input.call.task) > 1`, changed: map[string]string{"ok": "allowed undecided", "bad": "denied undecided", "mail": "needs_approval undecided",
			"quoted": "allowed undecided", "redacted": "allowed undecided", "addressed": "allowed undecided",
			"asked": "needs_approval undecided", "revoked": "allowed undecided", "oauth": "allowed undecided", "empty": "allowed undecided", "night": "allowed undecided", "fault": "allowed undecided", "proxied": "allowed undecided"}},
		{name: "reads roles", rules: `allow if "agent" in input.caller.roles`, changed: map[string]string{"bad": "denied allowed", "unsure": "undecided allowed", "asked": "needs_approval allowed"},
			missing: map[string]string{"oauth": "caller.roles", "proxied": "caller.roles"}},
		{name: "reads the method", rules: `deny contains "n" if input.caller.method == "oauth"`, changed: map[string]string{"bad": "denied allowed", "unsure": "undecided allowed", "asked": "needs_approval allowed"},
			missing: map[string]string{"oauth": "caller.method"}},
		{name: "denies proxies", rules: `deny contains "n" if input.caller.method == "proxy"`, changed: map[string]string{"bad": "denied allowed", "unsure": "undecided allowed", "asked": "needs_approval allowed", "proxied": "allowed denied"},
			missing: map[string]string{"oauth": "caller.method"}},
		{name: "reads the chain", rules: `deny contains "n" if "x" in input.caller.chain`, changed: map[string]string{"bad": "denied allowed", "unsure": "undecided allowed", "asked": "needs_approval allowed"}, missing: map[string]string{"oauth": "caller.chain", "proxied": "caller.chain"}},
		{name: "reads arguments", rules: `deny contains "n" if input.arguments.n > 1`, changed: map[string]string{"quoted": "allowed denied"}, missing: map[string]string{"redacted": "arguments", "ok": "arguments", "bad": "arguments", "unsure": "arguments", "mail": "arguments",
			"asked": "arguments", "revoked": "arguments", "oauth": "arguments", "proxied": "arguments", "night": "arguments", "fault": "arguments"}},
		{name: "reads the address", rules: `deny contains "n" if input.caller.address == "192.0.2.1"`, changed: map[string]string{"addressed": "allowed denied"}, missing: map[string]string{"quoted": "caller.address", "redacted": "caller.address", "ok": "caller.address", "bad": "caller.address", "unsure": "caller.address",
			"mail": "caller.address", "asked": "caller.address", "revoked": "caller.address", "oauth": "caller.address", "proxied": "caller.address", "empty": "caller.address", "night": "caller.address", "fault": "caller.address"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := s.Replay(t.Context(), admin, map[string]string{"p.rego": "package toolkeep\n\n" + c.rules}, 100)
			if err != nil {
				t.Fatal(err)
			}
			changed, missing := map[string]string{}, map[string]string{}
			for _, one := range r.Changed {
				changed[one.InvocationID] = one.Was + " " + one.Would
			}
			for _, one := range r.Unknown {
				missing[one.InvocationID] = strings.Join(one.Missing, " ")
			}
			if !strings.HasSuffix(missing["gone"], "tool") {
				t.Errorf("a version that is gone: %v", missing)
			}
			delete(missing, "gone")
			if !maps.Equal(changed, c.changed) || !maps.Equal(missing, c.missing) {
				t.Errorf("changed %v, want %v; missing %v, want %v", changed, c.changed, missing, c.missing)
			}
			if r.Calls != len(calls)-2 || r.NotAsked != 3 || r.Same != len(all)-len(changed)-len(missing) || r.TimedOut {
				t.Errorf("%d calls, %d not asked, %d the same of %d", r.Calls, r.NotAsked, r.Same, len(all))
			}
		})
	}
}

// TestReplayOfErased: a call whose person was erased is not decided again by a policy that reads what went with the person.
func TestReplayOfErased(t *testing.T) {
	for _, why := range []toolkeep.Withheld{toolkeep.Erased, toolkeep.Unreadable} {
		s := newSystem(t, "", recorded("gone", func(v *toolkeep.Invocation) {
			v.Withheld, v.OnBehalf, v.Chain, v.Addr, v.Input, v.ArgsHash = why, "", nil, "", nil, [32]byte{}
		}))
		for rules, want := range map[string]string{
			`deny contains "n" if input.caller.on_behalf_of == "x"`:                   "caller.on_behalf_of",
			`deny contains "n" if "x" in input.caller.chain`:                          "caller.chain",
			`deny contains "n" if input.caller.address == "192.0.2.1"`:                "caller.address",
			`deny contains "n" if input.arguments.n > 1`:                              "arguments",
			`deny contains "n" if input.caller.on_behalf_of == input.caller.chain[0]`: "caller.on_behalf_of caller.chain",
			`deny contains "n" if input.caller.subject == "x"`:                        "",
			`deny contains "n" if count(input) > 100`:                                 "caller.on_behalf_of caller.chain caller.address arguments call.token",
		} {
			r, err := s.Replay(t.Context(), admin, map[string]string{"p.rego": "package toolkeep\n\nallow := true\n" + rules}, 100)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, one := range r.Unknown {
				got += strings.Join(one.Missing, " ")
			}
			if got != want {
				t.Errorf("%s: %s lacks %q, want %q", why, rules, got, want)
			}
		}
	}
}

// TestReplayRefuses: who may not replay, what cannot be tried, and more than there is room for.
func TestReplayRefuses(t *testing.T) {
	s := newSystem(t, "", recorded("a"), recorded("b"), recorded("c"))
	fits := map[string]string{"p.rego": "package toolkeep\n\nallow := true"}
	for name, c := range map[string]struct {
		p     *toolkeep.Principal
		files map[string]string
		last  int
		code  toolkeep.Code
	}{
		"another tenant":      {&toolkeep.Principal{Tenant: "acme", Permissions: []string{"*"}}, fits, 1, toolkeep.PermissionDenied},
		"no operator":         {&toolkeep.Principal{Tenant: "default", Permissions: []string{toolkeep.PermInvocations}}, fits, 1, toolkeep.PermissionDenied},
		"who sees no calls":   {&toolkeep.Principal{Tenant: "default", Permissions: []string{toolkeep.PermOperate}}, fits, 1, toolkeep.PermissionDenied},
		"too many calls":      {admin, fits, MaxReplay + 1, toolkeep.InvalidParameters},
		"no calls":            {admin, fits, 0, toolkeep.InvalidParameters},
		"no files":            {admin, nil, 1, toolkeep.InvalidManifest},
		"no policy":           {admin, map[string]string{"p.rego": "package other"}, 1, toolkeep.InvalidManifest},
		"a syntax error":      {admin, map[string]string{"p.rego": "package toolkeep\nallow if {"}, 1, toolkeep.InvalidManifest},
		"the network":         {admin, map[string]string{"p.rego": "package toolkeep\nallow if http.send({}).ok"}, 1, toolkeep.InvalidManifest},
		"a file outside":      {admin, map[string]string{"../p.rego": "package toolkeep"}, 1, toolkeep.InvalidManifest},
		"another file":        {admin, map[string]string{"p.txt": "x"}, 1, toolkeep.InvalidManifest},
		"a compiled policy":   {admin, map[string]string{"policy.wasm": "x"}, 1, toolkeep.InvalidManifest},
		"too much to compile": {admin, map[string]string{"p.rego": "package toolkeep\n\nallow := true\n" + strings.Repeat("# more\n", MaxReplayBytes/7)}, 1, toolkeep.InvalidManifest},
		"data of other form":  {admin, map[string]string{"data.yaml": "x"}, 1, toolkeep.InvalidManifest},
	} {
		if _, err := s.Replay(t.Context(), c.p, c.files, c.last); err == nil || toolkeep.AsError(err).Code != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := s.Replay(t.Context(), admin, fits, 2); err != nil || r.Calls != 2 || r.Same != 2 {
		t.Errorf("%+v %v", r, err)
	}
	s.replaying.Store(true)
	if _, err := s.Replay(t.Context(), admin, fits, 1); err == nil || toolkeep.AsError(err).Code != toolkeep.ConcurrencyLimitExceeded {
		t.Errorf("beside another: %v", err)
	}
}

// TestRightsAreNoCalls: who and what count nothing as decided, run one at a time, and end.
func TestRightsAreNoCalls(t *testing.T) {
	s := newSystem(t, `deny contains "no" if input.caller.subject == "ann"`)
	before := s.c.Engine.Stats()
	for range 2 {
		r, err := s.Who(t.Context(), admin, "std.hash", "", 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.List, func(r Right) bool { return r.Subject == "ann" && r.Decision == Hidden && r.Check == "policy" }) {
			t.Errorf("%v", said(r))
		}
		if _, err := s.What(t.Context(), admin, "ann", "", 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	if after := s.c.Engine.Stats(); after != before {
		t.Errorf("counted %+v, before %+v", after, before)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(toolkeep.NewError(toolkeep.Timeout, "over"))
	for name, ask := range map[string]func(context.Context) (*Rights, error){
		"who":  func(ctx context.Context) (*Rights, error) { return s.Who(ctx, admin, "std.hash", "", 0, 100) },
		"what": func(ctx context.Context) (*Rights, error) { return s.What(ctx, admin, "ann", "", 0, 100) },
	} {
		if _, err := ask(ended); err == nil || toolkeep.AsError(err).Code != toolkeep.Timeout {
			t.Errorf("%s after its time: %v", name, err)
		}
		s.listing.Store(true)
		if _, err := ask(t.Context()); err == nil || toolkeep.AsError(err).Code != toolkeep.ConcurrencyLimitExceeded {
			t.Errorf("%s beside another: %v", name, err)
		}
		s.listing.Store(false)
	}
}

// TestReplayOfClaims: no record has claims, so a policy that reads them decides again only calls by keys, which have none.
func TestReplayOfClaims(t *testing.T) {
	s := newSystem(t, "", recorded("token", func(v *toolkeep.Invocation) { v.KeyID, v.Method = "", access.MethodOAuth }), recorded("key", func(*toolkeep.Invocation) {}))
	for rules, want := range map[string]string{
		`deny contains "n" if input.caller.claims.dept == "x"`: "token caller.claims",
		`deny contains "n" if input.caller.session == "x"`:     "token caller.session",
		`deny contains "n" if input.caller.subject == "x"`:     "",
	} {
		r, err := s.Replay(t.Context(), admin, map[string]string{"p.rego": "package toolkeep\n\nallow := true\n" + rules}, 100)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, one := range r.Unknown {
			got += one.InvocationID + " " + strings.Join(one.Missing, " ")
		}
		if got != want || r.Same != r.Calls-len(r.Unknown) {
			t.Errorf("%s: lacks %q, want %q; %d of %d the same", rules, got, want, r.Same, r.Calls)
		}
	}
}
