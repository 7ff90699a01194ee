package secrets_test

import (
	"context"
	"database/sql"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/sqlite"
	"github.com/toolkeep/toolkeep/upstream"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// fakeAccess lets every principal see every tool, and call those of its name.
type fakeAccess struct{}

func (fakeAccess) Visible(*toolkeep.Principal, *toolkeep.Tool) bool { return true }
func (fakeAccess) Authorise(p *toolkeep.Principal, t *toolkeep.Tool, _ *toolkeep.Call) access.Decision {
	return access.Decision{Allowed: strings.HasPrefix(t.ID, p.Subject)}
}

// fixture is a Secrets over a real store.
type fixture struct {
	*secrets.Secrets
	t      *testing.T
	store  *sqlite.Store
	sealer *secrets.Sealer
	tools  []toolkeep.Version
	queued int
	dir    string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := &fixture{t: t, dir: t.TempDir()}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(h.dir, "db"), Enqueue: func(context.Context, *sql.Tx, toolkeep.Enqueue) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h.store = s
	if h.sealer, err = secrets.OpenSealer(t.Context(), h.config()); err != nil {
		t.Fatal(err)
	}
	local := secret.NewLocal(secret.LocalConfig{Store: s, Sealer: h.sealer})
	resolver, err := secret.New(secret.Config{Stores: []secret.Store{local}, LookupEnv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	h.Secrets = secrets.New(secrets.Config{Store: s, Local: local, Resolver: resolver, Sealer: h.sealer, Access: fakeAccess{},
		Tools: func() iter.Seq[toolkeep.Version] { return slices.Values(h.tools) }, Redact: redact.NewRedactor(nil), Log: quiet})
	return h
}

func (h *fixture) config() secrets.SealConfig {
	return secrets.SealConfig{Data: h.dir, Store: h.store, Log: quiet, Queued: func(context.Context) (map[toolkeep.Priority]int, error) {
		return map[toolkeep.Priority]int{toolkeep.Normal: h.queued}, nil
	}}
}

// tool adds a tool that names secrets.
func (h *fixture) tool(id string, state toolkeep.VersionState, refs ...string) *toolkeep.Tool {
	m := &toolkeep.Manifest{ToolID: id}
	for _, ref := range refs {
		m.Auth = append(m.Auth, toolkeep.AuthSpec{Type: "bearer", Secret: ref})
	}
	t := &toolkeep.Tool{ID: id, Tenant: "acme", Manifest: m}
	h.tools = append(h.tools, toolkeep.Version{Tool: t, Life: toolkeep.Lifecycle{State: state}})
	return t
}

func (h *fixture) put(p *toolkeep.Principal, name string, w secrets.Where) secrets.Info {
	h.t.Helper()
	info, err := h.Put(h.t.Context(), p, name, w, "value-of-"+name, time.Time{})
	if err != nil {
		h.t.Fatal(err)
	}
	return info
}

func who(subject string, permissions ...string) *toolkeep.Principal {
	return &toolkeep.Principal{Tenant: "acme", Subject: subject, Permissions: permissions}
}

func is(t *testing.T, err error, code toolkeep.Code) {
	t.Helper()
	if err == nil || toolkeep.AsError(err).Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

var organisation = secrets.Where{Scope: "organisation"}

func TestList(t *testing.T) {
	h := newFixture(t)
	admin, bob := who("admin", toolkeep.PermSecretsAdmin), who("bob")
	h.tool("bob.read", toolkeep.Active, "secret://shop")
	h.tool("bob.gone", toolkeep.Removed, "secret://other")
	h.tool("carol.read", toolkeep.Active, "secret://shop", "secret://other")
	h.put(admin, "shop", organisation)
	h.put(admin, "other", organisation)
	h.put(bob, "own", secrets.Where{})

	for _, c := range []struct {
		p    *toolkeep.Principal
		want string
	}{
		{bob, "own shop"}, // not other: no tool names it which bob may call
		{who("bob", toolkeep.PermSecrets), "other own shop"},
		{admin, "other own shop"},
		{&toolkeep.Principal{Tenant: "elsewhere", Subject: "bob", Permissions: []string{toolkeep.PermSecretsAdmin}}, ""},
	} {
		list, err := h.List(t.Context(), c.p)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, one := range list {
			names = append(names, one.Name)
			if one.Name == "shop" && strings.Join(one.Tools, " ") != "bob.read carol.read" {
				t.Errorf("shop is named by %v", one.Tools)
			}
			if one.Name == "own" && (one.User != "bob" || one.Tools == nil || len(one.Tools) > 0) {
				t.Errorf("own is %+v", one)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s of %s is told of %q, want %q", c.p.Subject, c.p.Tenant, got, c.want)
		}
	}
}

func TestPutAndDelete(t *testing.T) {
	h := newFixture(t)
	admin, bob := who("admin", toolkeep.PermSecretsAdmin), who("bob")
	_, err := h.Put(t.Context(), bob, "shop", organisation, "value", time.Time{})
	is(t, err, toolkeep.PermissionDenied)
	for _, w := range []secrets.Where{{User: "bob", Workspace: "w"}, {Scope: "workspace", User: "bob"}, {Scope: "user", Workspace: "w"}, {Workspace: "w"}} {
		_, err := h.Put(t.Context(), admin, "shop", w, "value", time.Time{})
		is(t, err, toolkeep.InvalidParameters)
		is(t, h.Delete(t.Context(), admin, "shop", w), toolkeep.InvalidParameters)
	}
	if info := h.put(admin, "shop", secrets.Where{Scope: "workspace", Workspace: "w"}); info.Workspace != "w" || info.User != "" || info.Version != 1 || info.Reference != "secret://shop" {
		t.Errorf("got %+v", info)
	}
	if info := h.put(admin, "shop", secrets.Where{User: "bob"}); info.User != "bob" || info.Scope != "user" || info.ExpiresAt != nil {
		t.Errorf("got %+v", info)
	}
	if info := h.put(bob, "shop", secrets.Where{}); info.Version != 2 {
		t.Errorf("got %+v", info)
	}
	if err := h.Delete(t.Context(), bob, "shop", secrets.Where{}); err != nil {
		t.Fatal(err)
	}
	is(t, h.Delete(t.Context(), bob, "shop", secrets.Where{}), toolkeep.ResourceNotFound)
}

func TestTest(t *testing.T) {
	h := newFixture(t)
	admin, bob := who("admin", toolkeep.PermSecretsAdmin), who("bob")
	h.put(admin, "shop", organisation)
	h.put(bob, "own", secrets.Where{})
	test := func(p *toolkeep.Principal, ref string, as secrets.Where) secrets.State {
		t.Helper()
		st, err := h.Test(t.Context(), p, ref, as)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if st := test(bob, "own", secrets.Where{}); st.State != "ready" || st.Reference != "secret://own" || st.Scope != "user" || st.Store != "secret" || st.Version != "1" {
		t.Errorf("own: %+v", st)
	}
	if st := test(bob, "none", secrets.Where{}); st.State != "missing" || st.Code != string(toolkeep.SecretNotFound) || st.Reason == "" {
		t.Errorf("none: %+v", st)
	}
	if st := test(bob, "shop", secrets.Where{}); st.State != "missing" || st.Code != string(toolkeep.SecretNotFound) {
		t.Errorf("shop, which no tool names that bob may call: %+v", st)
	}
	h.tool("bob.read", toolkeep.Active, "secret://shop")
	if st := test(bob, "shop", secrets.Where{}); st.State != "ready" || st.Scope != "organisation" {
		t.Errorf("shop, which a tool names: %+v", st)
	}
	if st := test(admin, "own", secrets.Where{User: "bob"}); st.State != "ready" {
		t.Errorf("own as bob: %+v", st)
	}
	_, err := h.Test(t.Context(), bob, "shop", secrets.Where{User: "carol"})
	is(t, err, toolkeep.PermissionDenied)
	_, err = h.Test(t.Context(), bob, "env://TOOLKEEP_SECRET_X", secrets.Where{})
	is(t, err, toolkeep.PermissionDenied)
	if st := test(admin, "env://TOOLKEEP_SECRET_X", secrets.Where{}); st.State != "missing" || st.Store != "env" {
		t.Errorf("env: %+v", st)
	}
}

func TestToolAuth(t *testing.T) {
	h := newFixture(t)
	h.put(who("admin", toolkeep.PermSecretsAdmin), "shop", organisation)
	tool := h.tool("bob.read", toolkeep.Active, "secret://shop")
	if a := h.ToolAuth(t.Context(), who("bob"), tool, true); a == nil || a.State != "ready" || a.Scope != secret.Organisation {
		t.Errorf("bob, who may call it: %+v", a)
	}
	if a := h.ToolAuth(t.Context(), who("carol"), tool, true); a == nil || a.State != "ready" || a.Scope != "" || a.Store != "" {
		t.Errorf("carol, who may not: %+v", a)
	}
	if a := h.ToolAuth(t.Context(), who("bob"), h.tool("bob.open", toolkeep.Active), true); a != nil {
		t.Errorf("a tool without secrets: %+v", a)
	}
}

// server stores an MCP server with a sealed value, and gives what reads it.
func (h *fixture) server(name string) (value func() []byte) {
	h.t.Helper()
	put := func(body string) {
		err := h.store.Apply(h.t.Context(), toolkeep.PutDocument{Expect: toolkeep.AnyRevision, Document: toolkeep.Document{Kind: upstream.DocumentKind, Tenant: "acme", ID: name, Body: []byte(body)}})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	put(`{"transport":"http","url":"https://mcp.example/","headers":{"X-Key":"` + upstream.SealedScheme + sealed(h.t, h.sealer, "word") + `"}}`)
	return func() []byte {
		it, err := h.store.Document(h.t.Context(), upstream.DocumentKind, "acme", name)
		if err != nil {
			h.t.Fatal(err)
		}
		return it.Body
	}
}

func TestRotateSealKey(t *testing.T) {
	h := newFixture(t)
	root := access.System()
	h.put(root, "shop", organisation)
	server := h.server("files")
	before := string(server())
	_, err := h.RotateSealKey(t.Context(), who("admin", toolkeep.PermSecretsAdmin), true)
	is(t, err, toolkeep.PermissionDenied) // not of the home tenant

	done, err := h.RotateSealKey(t.Context(), root, true)
	if err != nil || done.Keys != 2 || done.Resealed != 2 || done.Unchanged != 0 || done.Failed != 0 || done.Key != h.sealer.Keys().Newest() {
		t.Fatalf("the first rotation: %+v, %v", done, err)
	}
	if string(server()) == before {
		t.Error("the server's value was not sealed under the new key")
	}
	if done, err = h.RotateSealKey(t.Context(), root, false); err != nil || done.Keys != 2 || done.Resealed != 0 || done.Unchanged != 2 {
		t.Fatalf("once more without a new key: %+v, %v", done, err)
	}
	if st, err := h.Test(t.Context(), root, "shop", secrets.Where{}); err != nil || st.State != "ready" || st.Version != "1" {
		t.Errorf("shop afterwards: %+v, %v", st, err)
	}

	// What cannot be opened is left, and the check stays under the old key.
	check := h.check()
	if err := h.store.Apply(t.Context(), toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: secret.DocumentKind, Tenant: "acme", ID: "broken", Body: []byte(`{"name":"broken","sealed":"AAAA"}`)}}); err != nil {
		t.Fatal(err)
	}
	if done, err = h.RotateSealKey(t.Context(), root, true); err != nil || done.Failed != 1 || done.Resealed != 2 {
		t.Fatalf("with a document that does not open: %+v, %v", done, err)
	}
	if string(h.check()) != string(check) {
		t.Error("the check was sealed under the new key although an old one is still needed")
	}
}

func (h *fixture) check() []byte {
	h.t.Helper()
	it, err := h.store.Document(h.t.Context(), secret.CheckKind, "", secret.CheckID)
	if err != nil {
		h.t.Fatal(err)
	}
	return it.Body
}
