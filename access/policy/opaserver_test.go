package policy

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// opaServer runs OPA's own server with a policy.
func opaServer(t *testing.T, rules string) *httptest.Server {
	t.Helper()
	store := inmem.New()
	manager, err := plugins.New([]byte(`{}`), "test", store)
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Stop(t.Context()) })
	opa, err := server.New().WithStore(store).WithManager(manager).Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = storage.Txn(t.Context(), store, storage.WriteParams, func(txn storage.Transaction) error {
		return store.UpsertPolicy(t.Context(), txn, "toolkeep.rego", []byte(rules))
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(opa.Handler)
	t.Cleanup(s.Close)
	return s
}

// TestRealOPA: OPA's own server decides as the same policy does in this process, by the whole package and by one rule of it.
func TestRealOPA(t *testing.T) {
	starter := string(Starter()["toolkeep.rego"])
	for name, c := range map[string]struct {
		rules, path string
		allow       bool
		reason      string
		owes        int
	}{
		"the starter":        {rules: starter, allow: true},
		"the rule allow":     {rules: starter, path: "/allow", allow: true},
		"a denial":           {rules: starter + "\ndeny contains sprintf(\"%s may not\", [input.caller.subject]) if input.tool.risk == \"medium\"\n", reason: "alice may not"},
		"a denial by amount": {rules: starter + "\ndeny contains {\"rule\": \"amount\", \"reason\": \"too much\"} if input.arguments.amount > 4\n", reason: "too much"},
		"an approval":        {rules: starter + "\nrequire_approval contains \"it is production\" if \"production\" in input.tool.tags\n", allow: true, owes: 1},
		"undefined":          {rules: "package toolkeep\n\nallow if input.tool.id == \"another\"\n", reason: "does not define allow"},
		"no such package":    {rules: "package elsewhere\n\nallow := true\n", reason: "does not define"},
	} {
		t.Run(name, func(t *testing.T) {
			s := opaServer(t, c.rules)
			e := remote(t, &Remote{OPA: s.URL + "/v1/data/toolkeep" + c.path})
			far, err := e.Decide(t.Context(), ask())
			if err != nil || far.Allow != c.allow || !strings.Contains(far.Reason, c.reason) || len(far.Obligations) != c.owes {
				t.Fatalf("the server decided %+v %v", far, err)
			}
			if name == "no such package" || c.path != "" {
				return // nothing to take here
			}
			here, err := try(t, map[string]string{"p.rego": c.rules})
			if err != nil {
				t.Fatal(err)
			}
			near, err := here.Decide(t.Context(), ask())
			if err != nil || near.Allow != far.Allow || len(near.Obligations) != len(far.Obligations) {
				t.Errorf("in this process %+v %v, by the server %+v", near, err, far)
			}
		})
	}
	s := opaServer(t, starter)
	e := remote(t, &Remote{OPA: s.URL + "/v1/data/toolkeep"})
	s.Close()
	if v, err := e.Decide(t.Context(), ask()); err == nil || v.Allow {
		t.Errorf("a server that has stopped decided %+v", v)
	}
}
