package servers

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
)

func TestNames(t *testing.T) {
	h := newFixture(t, nil)
	h.imports(httpSpec, tool("read", "Reads."))
	h.offers()
	for _, name := range []string{"common", "bare"} {
		if _, err := h.Import(t.Context(), admin("default"), name, []byte(httpSpec), ImportOptions{Shared: name == "common"}); err != nil {
			t.Fatal(err)
		}
	}
	blind := admin("acme")
	blind.Subject = "blind"
	for _, c := range []struct {
		p    *toolkeep.Principal
		want []string
	}{
		{admin("acme"), []string{"common", "pages"}},
		{admin("default"), []string{"bare", "common"}},
		{admin("globex"), []string{"common"}},
		{blind, nil},
	} {
		if got := h.Names(c.p); !slices.Equal(got, c.want) {
			t.Errorf("for %s/%s exist %v, want %v", c.p.Tenant, c.p.Subject, got, c.want)
		}
		for _, name := range []string{"common", "bare", "pages", "none"} {
			if h.Exists(c.p, name) != slices.Contains(c.want, name) {
				t.Errorf("%s for %s/%s", name, c.p.Tenant, c.p.Subject)
			}
		}
	}
}

func TestList(t *testing.T) {
	h := newFixture(t, nil)
	h.imports(`{"transport":"http","url":"https://mcp.example/","headers":{"X-Word":"ordinary","X-Ref":"secret://k"}}`, tool("read", "Reads."), tool("write", "Writes."))
	h.read(tool("read", "Reads fast."), tool("write", "Writes."), tool("list", "Lists."))
	if _, err := h.Import(t.Context(), admin("default"), "common", []byte(httpSpec), ImportOptions{Shared: true}); err != nil {
		t.Fatal(err)
	}
	list := h.List(admin("acme"))
	if len(list) != 2 || list[1].Tools != 2 || list[1].Held != 1 || !slices.Equal(list[1].Pending, []string{"pages.list"}) {
		t.Fatalf("%+v", list)
	}
	if spec := string(list[1].Spec); !strings.Contains(spec, `"X-Word":"(hidden)"`) || !strings.Contains(spec, `"X-Ref":"secret://k"`) {
		t.Errorf("its definition is shown as %s", spec)
	}
	if list[0].Spec != nil {
		t.Errorf("a tenant is shown the definition of a server of all: %s", list[0].Spec)
	}
	if home := h.List(admin("default")); len(home) != 1 || home[0].Spec == nil {
		t.Errorf("%+v", home)
	}
}

func TestSealedValues(t *testing.T) {
	h := newFixture(t, nil)
	const spec = `{"transport":"http","url":"https://mcp.example/","headers":{"X-Word":"ordinary","Api-Key":"Basic hunter2","X-Ref":"env://WORD","X-Text":"text:env://x"},"oauth":{"client_id":"c","client_secret":"s3cret"}}`
	h.imports(spec, tool("read", "Reads."))
	stored := h.stored[serverID{"acme", "pages"}]
	for _, word := range []string{"ordinary", "hunter2", "s3cret", "text:"} {
		if strings.Contains(string(stored.Body), word) {
			t.Errorf("%q stands in the store", word)
		}
	}
	resolved := func() map[string]upstream.Value {
		t.Helper()
		d := h.stored[serverID{"acme", "pages"}]
		s, err := upstream.ParseSpec(d.ID, d.Tenant, d.Body)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]upstream.Value{}
		s.Headers["oauth"] = s.OAuth.ClientSecret
		for name, v := range s.Headers {
			_, ref, _ := upstream.Secret(v)
			if out[name], err = h.c.Credentials.Resolve(t.Context(), s, admin("acme"), ref); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return out
	}
	h.secrets["env://WORD"] = secret.Value{Bytes: []byte("word"), Scope: secret.Server}
	got := resolved()
	if got["X-Word"].Text != "ordinary" || !slices.Equal(got["X-Word"].Held, []string{"ordinary"}) || got["X-Word"].Scope != (redact.Scope{Tenant: "acme"}) {
		t.Errorf("%+v", got["X-Word"])
	}
	if v := got["Api-Key"]; v.Text != "Basic hunter2" || !slices.Equal(v.Held, []string{"Basic hunter2", "hunter2"}) {
		t.Errorf("%+v", v)
	}
	if v := got["X-Ref"]; v.Text != "word" || v.Scope != redact.AllTenants {
		t.Errorf("%+v", v)
	}
	if got["X-Text"].Text != "env://x" || got["oauth"].Text != "s3cret" {
		t.Errorf("%+v", got)
	}

	// What is shown may be sent back; what was never there cannot.
	h.imports(string(h.List(admin("acme"))[0].Spec), tool("read", "Reads."))
	if again := resolved(); again["X-Word"].Text != "ordinary" || again["oauth"].Text != "s3cret" {
		t.Errorf("%+v", again)
	}
	for _, headers := range []string{`{"X-New":"(hidden)"}`, `{"X-Word":"sealed://abc"}`, `{"X-Word":"kept://abc"}`} {
		_, err := h.Import(t.Context(), admin("acme"), "pages", []byte(`{"transport":"http","url":"https://mcp.example/","headers":`+headers+`}`), ImportOptions{})
		wantCode(t, err, toolkeep.InvalidParameters)
	}
	_, err := h.c.Credentials.Resolve(t.Context(), &upstream.Spec{}, admin("acme"), upstream.SealedScheme+"bm8")
	wantCode(t, err, toolkeep.SecretNotFound)
}

func TestLogin(t *testing.T) {
	h := newFixture(t, func(c *Config) { c.StdioTenants = []string{"acme"} })
	h.imports(`{"transport":"http","url":"https://mcp.example/","session":"principal"}`, tool("read", "Reads."))
	boss := admin("acme")
	wantCode(t, h.Login(t.Context(), boss, "pages"), toolkeep.LoginRequired)
	h.logins.tokens["acme/boss@pages"] = "bearer"
	if err := h.Login(t.Context(), boss, "pages"); err != nil {
		t.Error(err)
	}
	if err := h.Logout(t.Context(), boss, "pages"); err != nil || h.logins.told[len(h.logins.told)-1] != "logout acme/boss@pages" {
		t.Errorf("%v %v", err, h.logins.told)
	}
	blind := admin("acme")
	blind.Subject = "blind"
	wantCode(t, h.Login(t.Context(), blind, "pages"), toolkeep.ResourceNotFound)
	wantCode(t, h.Logout(t.Context(), boss, "none"), toolkeep.ResourceNotFound)

	// Servers with credentials of their own, and those of whole tenants, take no login.
	delete(h.logins.tokens, "acme/boss@pages")
	for _, spec := range []string{`{"transport":"http","url":"https://mcp.example/","session":"principal","headers":{"authorization":"Bearer x"}}`, httpSpec} {
		h.imports(spec, tool("read", "Reads."))
		if err := h.Login(t.Context(), boss, "pages"); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
	h.imports(`{"transport":"stdio","command":["/bin/true"]}`, tool("read", "Reads."))
	wantCode(t, h.Login(t.Context(), boss, "pages"), toolkeep.InvalidParameters)

	spec := &upstream.Spec{Name: "pages"}
	if a, err := h.c.Credentials.Authorize(t.Context(), spec, &toolkeep.Principal{Tenant: "acme"}); err != nil {
		t.Error(err)
	} else {
		wantCode(t, a.Unauthorized(t.Context(), nil), toolkeep.SecretAccessDenied)
	}
}
