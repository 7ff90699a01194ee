package policy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write writes the files of a policy; a name that begins with - is removed.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func engine(t testing.TB, rules string, change ...func(*Config)) *Engine {
	t.Helper()
	e, err := try(t, map[string]string{"p.rego": "package toolkeep\n" + rules}, change...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func try(t testing.TB, files map[string]string, change ...func(*Config)) (*Engine, error) {
	t.Helper()
	c := Config{Path: t.TempDir(), Timeout: 20 * time.Second}
	write(t, c.Path, files)
	for _, f := range change {
		f(&c)
	}
	return New(t.Context(), c)
}

// ask returns a question; change alters it.
func ask(change ...func(q *access.Question)) *access.Question {
	q := &access.Question{
		Principal: &toolkeep.Principal{Subject: "alice", Tenant: "acme", Roles: []string{"agent", "clerk"}, Method: "api_key", KeyID: "k1",
			OnBehalf: "bob", Chain: []string{"bob", "planner"}, Workspace: "w1", Permissions: []string{"act-as"}, Addr: "192.0.2.7",
			Session: "o1", Claims: toolkeep.NewClaims(arguments(`{"dept":"finance","level":3,"groups":["a","b"],"sub":"alice"}`))},
		Tool: &toolkeep.Tool{ID: "billing.eu.refund", Version: "1.2.3", Tenant: "acme", Digest: "sha256:aa", Manifest: &toolkeep.Manifest{
			Category: "finance", Tags: []string{"production"}, Capabilities: []string{"refund"}, Risk: "medium", SideEffects: "writes",
			Execution: toolkeep.ExecutionSpec{Kind: "http"}}},
		Call: &toolkeep.Call{Session: "s1", Plan: "p1", Task: "OPS-1", Parent: "i0", Face: "rest",
			Grant: &toolkeep.Grant{ID: "j1", Issuer: "toolkeep", Agent: "alice", Tenant: "acme", Tools: []string{"billing.*"}}},
		Arguments: arguments(`{"amount":5,"to":{"iban":"X"},"list":[1,true,null]}`),
	}
	for _, f := range change {
		f(q)
	}
	return q
}

func arguments(text string) map[string]any {
	tree, err := canon.ParseObject([]byte(text), canon.Limits{})
	if err != nil {
		panic(err)
	}
	return tree
}

// TestRules: what each form of a policy decides.
func TestRules(t *testing.T) {
	sunday := func() time.Time { return time.Date(2026, 11, 29, 19, 30, 0, 0, time.UTC) }
	for _, c := range []struct {
		name, rules string
		allow       bool
		reason      string
		rule        string
		approval    string
		fails       string
	}{
		{name: "allow", rules: `allow if input.caller.subject == "alice"`, allow: true, rule: "data.toolkeep.allow"},
		{name: "allow that is not defined", rules: `allow if input.caller.subject == "bob"`, reason: "no rule of the policy allows", rule: "data.toolkeep.allow"},
		{name: "allow that is false", rules: `allow := false`, reason: "no rule of the policy allows"},
		{name: "allow that is no boolean", rules: `allow := "yes"`, fails: "must be true or false"},
		{name: "two values of allow", rules: "allow := true\nallow := input.caller.subject == \"bob\"", fails: "conflict"},
		{name: "deny alone, empty", rules: `deny contains "no" if input.caller.subject == "bob"`, allow: true},
		{name: "deny", rules: `deny contains "no writes" if input.tool.side_effects == "writes"`, reason: "no writes", rule: "data.toolkeep.deny"},
		{name: "deny beats allow", rules: "allow := true\ndeny contains \"no\" if true", reason: "no"},
		{name: "two reasons", rules: "deny contains \"a\" if true\ndeny contains \"b\" if true", reason: "a; b"},
		{name: "a named rule", rules: `deny contains {"rule": "ticket", "reason": "r"} if true`, reason: "r", rule: "ticket"},
		{name: "a reason that is a number", rules: `deny contains 5 if true`, fails: "a reason is a text"},
		{name: "a reason that is no text in an object", rules: `deny contains {"reason": 5} if true`, fails: "without a text as reason"},
		{name: "approval", rules: `require_approval contains sprintf("amount %v", [input.arguments.amount]) if input.arguments.amount > 3`, allow: true, approval: "amount 5"},
		{name: "approval that is not needed", rules: `require_approval contains "x" if input.arguments.amount > 30`, allow: true},
		{name: "deny beats approval", rules: "deny contains \"no\" if true\nrequire_approval contains \"x\" if true", reason: "no"},
		{name: "a builtin that fails is not passed over", rules: `deny contains "no" if to_number(input.caller.subject) > 1`, fails: "to_number"},
		{name: "time", rules: `allow if { input.time.weekday == "Sunday"; input.time.hour == 19; input.time.minute == 30; input.time.of_day == "evening"; input.time.rfc3339 == "2026-11-29T19:30:00Z"; input.time.unix_ns == time.now_ns() }`, allow: true},
		{name: "time in a zone", rules: `allow if { [20, 30, 0] == time.clock([time.now_ns(), "Europe/Berlin"]) }`, allow: true},
		{name: "address", rules: `allow if net.cidr_contains("192.0.2.0/24", input.caller.address)`, allow: true},
		{name: "everything of the caller", rules: `allow if input.caller == {"subject": "alice", "tenant": "acme", "roles": ["agent", "clerk"], "method": "api_key", "key_id": "k1", "on_behalf_of": "bob", "chain": ["bob", "planner"], "workspace": "w1", "permissions": ["act-as"], "address": "192.0.2.7", "session": "o1", "claims": {"dept": "finance", "level": 3, "groups": ["a", "b"], "sub": "alice"}}`, allow: true},
		{name: "everything of the tool", rules: `allow if input.tool == {"id": "billing.eu.refund", "namespace": "billing.eu", "version": "1.2.3", "digest": "sha256:aa", "tenant": "acme", "category": "finance", "tags": ["production"], "capabilities": ["refund"], "risk": "medium", "side_effects": "writes", "idempotent": false, "kind": "http", "requires_approval": false}`, allow: true},
		{name: "everything of the call", rules: `allow if { input.call == {"session": "s1", "plan": "p1", "task": "OPS-1", "parent": "i0", "face": "rest", "async": false, "priority": "normal", "token": {"iss": "toolkeep", "agent_did": "alice", "tenant_id": "acme", "tool_id": ["billing.*"]}}; input.action == "invoke" }`, allow: true},
		{name: "the arguments", rules: `allow if input.arguments == {"amount": 5, "to": {"iban": "X"}, "list": [1, true, null]}`, allow: true},
		{name: "the whole input", rules: `allow if object.keys(input) == {"action", "caller", "tool", "call", "arguments", "time"}`, allow: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t, c.rules, func(c *Config) { c.Clock = sunday })
			for range 2 { // the second may be kept
				v, err := e.Decide(t.Context(), ask())
				if c.fails != "" {
					if err == nil || !strings.Contains(err.Error(), c.fails) || v.Allow {
						t.Fatalf("%+v %v", v, err)
					}
					continue
				}
				if err != nil || v.Allow != c.allow || !strings.Contains(v.Reason, c.reason) || c.rule != "" && v.Rule != c.rule {
					t.Fatalf("%+v %v", v, err)
				}
				said := ""
				if len(v.Obligations) > 0 {
					said = v.Obligations[0].Reason
				}
				if said != c.approval {
					t.Errorf("approval %q", said)
				}
			}
		})
	}
}

// TestRefusedPolicies: what is not taken says why and where.
func TestRefusedPolicies(t *testing.T) {
	long := strings.Repeat("a/", maxFolders+1)
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"nothing":            {map[string]string{"README.md": "x"}, "has no file named *.rego"},
		"only data":          {map[string]string{"data.json": "{}"}, "has none of the rules"},
		"syntax":             {map[string]string{"p.rego": "package toolkeep\nallow if {"}, "p.rego:2"},
		"another package":    {map[string]string{"p.rego": "package other\nallow := true"}, "package toolkeep has none of the rules"},
		"http.send":          {map[string]string{"p.rego": "package toolkeep\nallow if http.send({\"url\": \"http://127.0.0.1\", \"method\": \"get\"}).status_code == 200"}, "undefined function http.send"},
		"opa.runtime":        {map[string]string{"p.rego": "package toolkeep\nallow if opa.runtime().env.HOME"}, "undefined function opa.runtime"},
		"a look-up of names": {map[string]string{"p.rego": "package toolkeep\nallow if net.lookup_ip_addr(\"x\")"}, "undefined function net.lookup_ip_addr"},
		"a remote schema":    {map[string]string{"p.rego": "package toolkeep\nallow if json.match_schema({}, {\"$ref\": \"http://127.0.0.1/x\"})[0]"}, "undefined function json.match_schema"},
		"random numbers":     {map[string]string{"p.rego": "package toolkeep\nallow if rand.intn(\"x\", 2) == 1"}, "undefined function rand.intn"},
		"in a helper":        {map[string]string{"p.rego": "package toolkeep\nallow if data.lib.f", "lib.rego": "package lib\nf if http.send({})"}, "lib.rego:2"},
		"allow as a set":     {map[string]string{"p.rego": "package toolkeep\nallow contains 1 if true"}, "must be true or false"},
		"allow as function":  {map[string]string{"p.rego": "package toolkeep\nallow(x) := x"}, "is a function"},
		"deny as a value":    {map[string]string{"p.rego": "package toolkeep\ndeny if true"}, "must be a set of reasons"},
		"deny as an object":  {map[string]string{"p.rego": "package toolkeep\ndeny[x] := 1 if x := \"a\""}, "must be a set of reasons"},
		"a rule in a test":   {map[string]string{"p.rego": "package toolkeep\nallow := true", "p_test.rego": "package toolkeep\ndeny contains \"no\" if true"}, "p_test.rego:2: toolkeep.deny is in a file of tests"},
		"a test that fails":  {map[string]string{"p.rego": "package toolkeep\nallow := true", "p_test.rego": "package t\nimport data.toolkeep\ntest_never if not toolkeep.allow"}, "p_test.rego:3: the test t.test_never failed"},
		"a test that cannot": {map[string]string{"p.rego": "package toolkeep\nallow := true", "p_test.rego": "package t\ntest_http if http.send({})"}, "undefined function http.send"},
		"a test that errs":   {map[string]string{"p.rego": "package toolkeep\nallow := true", "p_test.rego": "package t\ntest_n if to_number(\"x\") == 1"}, "test t.test_n failed"},
		"broken data":        {map[string]string{"p.rego": "package toolkeep\nallow := true", "data.json": "{"}, "data.json"},
		"data over rules":    {map[string]string{"p.rego": "package toolkeep\nallow := true", "toolkeep/data.json": `{"allow":true}`}, "is the package of the rules"},
		"data twice":         {map[string]string{"p.rego": "package toolkeep\nallow := true", "a/data.json": `{"b":1}`, "data.json": `{"a":2}`}, "is set in another file too"},
		"data in YAML":       {map[string]string{"p.rego": "package toolkeep\nallow := true", "data.yaml": "a: 1"}, "convert it"},
		"WebAssembly":        {map[string]string{"p.rego": "package toolkeep\nallow := true", "policy.wasm": "x"}, "compiled policies"},
		"a deep folder":      {map[string]string{long + "p.rego": "package toolkeep\nallow := true"}, "nested more than"},
		"a large file":       {map[string]string{"p.rego": "package toolkeep\nallow := true\n#" + strings.Repeat("x", maxFileBytes)}, "more than 4 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := try(t, c.files); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v, want %q", err, c.says)
			}
		})
	}
}

// TestRulesBelowNames: a rule below the name of one that is asked is refused, not passed over,
// beside rules that are asked and in a file or a package of its own.
func TestRulesBelowNames(t *testing.T) {
	for i, name := range ruleNames {
		says := "must be true or false, such as: " + name + " if"
		if i == ruleDeny || i == ruleApproval {
			says = "must be a set of reasons, such as: " + name + " contains"
		}
		other := "deny contains \"no\" if input.caller.subject == \"mallory\"\n"
		if i == ruleDeny {
			other = "allow := true\n"
		}
		for form, rule := range map[string]string{
			"a text":             "NAME[\"closed\"] if true",
			"a name":             "NAME.closed if true",
			"a value":            "NAME.closed := true",
			"a default":          "default NAME.closed := true",
			"a set":              "NAME.closed contains \"no\" if true",
			"a variable":         "NAME[x] := true if some x in [\"a\"]",
			"sets by a variable": "NAME[x] contains \"no\" if some x in [\"a\"]",
			"two names":          "NAME.a.b if true",
			"a function":         "NAME.f(x) := x",
		} {
			rule = strings.ReplaceAll(rule, "NAME", name)
			t.Run(name+"/"+form, func(t *testing.T) {
				for _, files := range []map[string]string{
					{"p.rego": "package toolkeep\n" + other + rule},
					{"p.rego": "package toolkeep\n" + other, "q.rego": "package toolkeep\n\n" + rule},
					{"p.rego": "package toolkeep\n" + other, "q.rego": "package toolkeep." + name + "\n\nx if true"},
				} {
					where := "p.rego:3: "
					if len(files) > 1 {
						where = "q.rego:3: "
					}
					if _, err := try(t, files); err == nil || !strings.Contains(err.Error(), where+"the rule is below toolkeep."+name) || !strings.Contains(err.Error(), says) {
						t.Errorf("%v", err)
					}
				}
			})
		}
	}
}

// TestStarter: the policy to start from is valid, has tests that pass, and changes nothing.
func TestStarter(t *testing.T) {
	files := map[string]string{}
	for name, raw := range Starter() {
		files[name] = string(raw)
	}
	e, err := try(t, files)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := e.Decide(t.Context(), ask()); err != nil || !v.Allow || len(v.Obligations) > 0 {
		t.Errorf("%+v %v", v, err)
	}
	if s := e.State(); s.Tests != 2 || e.ReadsArguments() {
		t.Errorf("%+v", s)
	}
	// Its examples are valid too, and do what they say.
	text := files["toolkeep.rego"]
	_, examples, _ := strings.Cut(text, "default allow := true\n")
	var lines []string
	for line := range strings.Lines(examples) {
		code := strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "#"), " ")
		if strings.HasPrefix(line, "#") && (strings.HasPrefix(code, "\t") || strings.HasPrefix(code, "deny ") || strings.HasPrefix(code, "require_approval ") || strings.HasPrefix(code, "office_hours ") || code == "}") {
			lines = append(lines, code)
		}
	}
	e, err = try(t, map[string]string{"p.rego": "package toolkeep\ndefault allow := true\n" + strings.Join(lines, "\n"), "data.json": `{"tenants":{"acme":{"namespaces":["billing","billing.eu"]}}}`},
		func(c *Config) { c.Clock = func() time.Time { return time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC) } })
	if err != nil {
		t.Fatal(err)
	}
	refund := func(q *access.Question) { q.Tool.ID = "billing.refund" }
	for _, c := range []struct {
		q      *access.Question
		reason string
		owes   int
	}{
		{ask(refund), "", 0},
		{ask(refund, func(q *access.Question) { q.Arguments = arguments(`{"amount":1001}`) }), "", 1},
		{ask(refund, func(q *access.Question) { q.Arguments = arguments(`{"amount":"1"}`) }), "amount is not a number", 0},
		{ask(refund, func(q *access.Question) { q.Arguments = arguments(`{}`) }), "amount is not a number", 0},
		{ask(func(q *access.Question) { q.Call.Task = "" }), "need a ticket", 0},
		{ask(func(q *access.Question) { q.Principal.Tenant = "other" }), "tenant other may not use tools of billing", 0},
	} {
		v, err := e.Decide(t.Context(), c.q)
		if err != nil || v.Allow != (c.reason == "") || !strings.Contains(v.Reason, c.reason) || len(v.Obligations) != c.owes {
			t.Errorf("%+v %v, want %q", v, err, c.reason)
		}
	}
}

// changes are single changes of a question, by the part that they change.
var changes = map[part]func(*access.Question){
	partSubject:     func(q *access.Question) { q.Principal.Subject = "mallory" },
	partTenant:      func(q *access.Question) { q.Principal.Tenant = "evil" },
	partRoles:       func(q *access.Question) { q.Principal.Roles = []string{"agentclerk"} },
	partOnBehalf:    func(q *access.Question) { q.Principal.OnBehalf = "eve" },
	partChain:       func(q *access.Question) { q.Principal.Chain = []string{"bobplanner"} },
	partWorkspace:   func(q *access.Question) { q.Principal.Workspace = "w2" },
	partMethod:      func(q *access.Question) { q.Principal.Method = "oauth" },
	partKeyID:       func(q *access.Question) { q.Principal.KeyID = "k2" },
	partPermissions: func(q *access.Question) { q.Principal.Permissions = nil },
	partAddress:     func(q *access.Question) { q.Principal.Addr = "198.51.100.1" },
	partOwnSession:  func(q *access.Question) { q.Principal.Session = "o2" },
	partClaims:      func(q *access.Question) { q.Principal.Claims = toolkeep.NewClaims(arguments(`{"dept":"sales"}`)) },
	partTool: func(q *access.Question) {
		q.Tool = &toolkeep.Tool{ID: "a.b", Version: "1.0.0", Digest: "sha256:bb", Manifest: &toolkeep.Manifest{}}
	},
	partSession:  func(q *access.Question) { q.Call.Session = "s2" },
	partPlan:     func(q *access.Question) { q.Call.Plan = "p2" },
	partTask:     func(q *access.Question) { q.Call.Task = "t2" },
	partParent:   func(q *access.Question) { q.Call.Parent = "i1" },
	partFace:     func(q *access.Question) { q.Call.Face = "mcp" },
	partAsync:    func(q *access.Question) { q.Call.Async = true },
	partPriority: func(q *access.Question) { q.Call.Priority = toolkeep.High },
	partToken: func(q *access.Question) {
		q.Call.Grant = &toolkeep.Grant{ID: "j1", Tools: []string{"billing.eu.refund"}}
	},
	partArguments: func(q *access.Question) { q.Arguments = arguments(`{"amount":6}`) },
}

// TestAnswersDoNotLeak: for every part of the input, in every way to name it, an answer that
// was kept for one question is not given to another that differs in that part.
func TestAnswersDoNotLeak(t *testing.T) {
	for _, m := range inputMembers {
		members := []member{{name: nil, part: m.part}}
		switch m.part {
		case partCaller:
			members = callerMembers
		case partCall:
			members = callMembers
		case partAction, partTime:
			continue
		}
		for _, sub := range members {
			top, name := word(m.name), ""
			static, dynamic, whole := "input."+top, `input[k]`, "x := input; v := x."+top
			if sub.name != nil {
				name = word(sub.name)
				static, dynamic, whole = static+"."+name, `input.`+top+`[k]`, "x := input; v := x."+top+"."+name
			} else {
				name = top
			}
			before, after := ask(), ask(changes[sub.part])
			for form, rule := range map[string]string{
				"named":     "allow if { " + static + " == data.want }",
				"a key":     "allow if { some k; k == data.key; " + dynamic + " == data.want }",
				"the whole": "allow if { " + whole + "; v == data.want }",
				"imported":  "import input." + top + " as it\nallow if { it" + strings.TrimPrefix(static, "input."+top) + " == data.want }",
				"passed":    "allow if is(input." + top + ")\nis(v) if { v" + strings.TrimPrefix(static, "input."+top) + " == data.want }",
				"got":       fmt.Sprintf("allow if { object.get(input, [%q%s], null) == data.want }", top, map[bool]string{true: fmt.Sprintf(", %q", name)}[sub.name != nil]),
				"walked":    fmt.Sprintf("allow if { some p, v; walk(input, [p, v]); p == [%q%s]; v == data.want }", top, map[bool]string{true: fmt.Sprintf(", %q", name)}[sub.name != nil]),
				"elsewhere": "allow if data.lib.ok",
				"somewhere": "allow if { some k; data.lib[k] }",
				"an else":   "allow := false if { input.action == \"see\" } else if { ok }\nok if " + static + " == data.want",
				"the second else": "allow := false if { input.action == \"see\" } else := false if { input.action == \"\" } else := ok\n" +
					"default ok := false\nok if " + static + " == data.want",
				"an else of a rule":     "allow if ok\nok := false if { input.action == \"see\" } else if { is }\nis if " + static + " == data.want",
				"an else of a function": "allow if ok(1)\nok(x) := false if { x == 2 } else if { is }\nis if " + static + " == data.want",
			} {
				if form != "named" && !slices.Contains([]string{"subject", "session", "claims", "tool", "arguments"}, name) {
					continue // the forms do not depend on the member
				}
				t.Run(top+"."+name+"/"+form, func(t *testing.T) {
					q := &question{Question: *before, action: "invoke", reads: claimSet{all: true}}
					tree, err := input(q, partAll&^partTime)
					if err != nil {
						t.Fatal(err)
					}
					path := ast.MustParseRef("input." + strings.TrimPrefix(static, "input."))
					want, err := tree.Find(path[1:])
					if err != nil {
						t.Fatal(err)
					}
					e, err := try(t, map[string]string{
						"p.rego":    "package toolkeep\n" + rule,
						"lib.rego":  "package lib\nok if " + static + " == data.want",
						"data.json": fmt.Sprintf(`{"want":%s,"key":%q}`, want.String(), name),
					})
					if err != nil {
						t.Fatal(err)
					}
					for range 2 {
						for i, q := range []*access.Question{before, after} {
							v, err := e.Decide(t.Context(), q)
							if err != nil || v.Allow != (i == 0) {
								t.Fatalf("question %d: %+v %v", i, v, err)
							}
						}
					}
				})
			}
		}
	}
}

// TestShownDoesNotLeak: what one caller is shown is not shown to another that the policy hides it
// from, and the two are different audiences, in every way to name what they differ in.
func TestShownDoesNotLeak(t *testing.T) {
	for _, sub := range callerMembers {
		static := "input.caller." + word(sub.name)
		tree, err := input(&question{Question: *ask(), action: "see", reads: claimSet{all: true}}, partAll&^partTime)
		if err != nil {
			t.Fatal(err)
		}
		want, err := tree.Find(ast.MustParseRef(static)[1:])
		if err != nil {
			t.Fatal(err)
		}
		is := "\nis if " + static + " == " + want.String()
		for form, rule := range map[string]string{
			"a body":                "visible if is",
			"an else":               "visible := false if { input.action == \"invoke\" } else if { is }",
			"the value of an else":  "visible := false if { input.action == \"invoke\" } else := is\ndefault is := false",
			"an else of a rule":     "visible if ok\nok := false if { input.action == \"invoke\" } else if { is }",
			"an else of a function": "visible if ok(1)\nok(x) := false if { x == 2 } else if { is }",
		} {
			t.Run(word(sub.name)+"/"+form, func(t *testing.T) {
				e := engine(t, "allow := true\n"+rule+is)
				first, second := ask(), ask(changes[sub.part])
				for range 2 {
					if !e.Sees(first.Principal, first.Tool) || e.Sees(second.Principal, first.Tool) {
						t.Error("shown to the wrong caller")
					}
				}
				a, _ := e.Audience(first.Principal)
				if b, _ := e.Audience(second.Principal); a == b {
					t.Error("both are one audience")
				}
			})
		}
	}
}

// TestKeptAnswers: what is equal in all that the policy reads is evaluated once, until it is
// over; what depends on the time is not kept.
func TestKeptAnswers(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func(c *Config) { c.Clock = func() time.Time { return now } }
	for _, c := range []struct {
		name, rules string
		change      part
		evaluated   int64
	}{
		{"the same question", `allow if input.caller.subject == "alice"`, 0, 1},
		{"a part that is not read", `allow if input.caller.subject == "alice"`, partArguments, 1},
		{"another part of what is read", `allow if input.caller.subject == "alice"`, partRoles, 1},
		{"a part that is read", `allow if input.caller.roles[_] == "agent"`, partRoles, 2},
		{"another tenant, not read", `allow := true`, partTenant, 2},
		{"another tool, not read", `allow := true`, partTool, 2},
		{"the time", `allow if time.now_ns() > 0`, 0, 2},
		{"the time of the input", `allow if input.time.hour >= 0`, 0, 2},
		{"the whole input", `allow if count(input) > 0`, 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t, c.rules, clock)
			second := ask()
			if c.change != 0 {
				changes[c.change](second)
			}
			for _, q := range []*access.Question{ask(), second} {
				if _, err := e.Decide(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			if s := e.Stats(); s.Evaluated != c.evaluated || s.Kept != 2-c.evaluated {
				t.Errorf("%+v", s)
			}
		})
	}
	e := engine(t, `allow := true`, clock, func(c *Config) { c.KeepFor = time.Minute })
	for _, wait := range []time.Duration{0, time.Minute - 1, 1} {
		now = now.Add(wait)
		if _, err := e.Decide(t.Context(), ask()); err != nil {
			t.Fatal(err)
		}
	}
	if s := e.Stats(); s.Evaluated != 2 {
		t.Errorf("%+v: the answer was over after a minute", s)
	}
}

// TestWhatIsShownIsKeptApart: the answers that lists of tools cause push out none about calls.
func TestWhatIsShownIsKeptApart(t *testing.T) {
	e := engine(t, "deny contains \"no\" if input.tool.category == \"x\"\nvisible if input.caller.tenant != \"y\"")
	q := ask()
	e.Sees(q.Principal, q.Tool)
	e.Refuses(q.Principal, q.Tool)
	count := func(a *answers) (n int) {
		for i := range a.shards {
			n += len(a.shards[i].m)
		}
		return n
	}
	g := e.current.Load()
	if calls, shown := count(&g.kept), count(&g.shown); calls != 0 || shown != 2 {
		t.Errorf("%d answers are kept about calls and %d about what is shown, want 0 and 2", calls, shown)
	}
	if _, err := e.Decide(t.Context(), q); err != nil || count(&g.kept) != 1 {
		t.Errorf("%d answers are kept about a call, %v", count(&g.kept), err)
	}
}

// TestCacheIsBounded: neither many answers nor long ones go over the limits.
func TestCacheIsBounded(t *testing.T) {
	var a answers
	long := answer{verdict: access.Verdict{Reason: strings.Repeat("x", 10_000)}, until: time.Unix(1, 0)}
	for i := range 4 * cacheEntries {
		var key [32]byte
		key[0], key[1], key[2], key[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
		v := answer{until: time.Unix(1, 0)}
		if i%50 == 0 {
			v = long
		}
		a.put(key, v, 1)
	}
	entries, bytes := 0, 0
	for i := range a.shards {
		entries, bytes = entries+len(a.shards[i].m), bytes+a.shards[i].bytes
	}
	if entries > cacheEntries || bytes > cacheBytes || entries == 0 {
		t.Errorf("%d entries, %d bytes", entries, bytes)
	}
}

// TestTimeLimit: a policy that computes for too long is an error, and so is a call that ended.
func TestTimeLimit(t *testing.T) {
	e := engine(t, "allow if count([1 | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); a * b == -1]) > 0",
		func(c *Config) { c.Timeout = 20 * time.Millisecond })
	if v, err := e.Decide(t.Context(), ask()); err == nil || v.Allow || !strings.Contains(err.Error(), "took longer than 20ms") {
		t.Errorf("%+v %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := engine(t, `allow := true`).Decide(ctx, ask()); err == nil || v.Allow {
		t.Errorf("%+v %v", v, err)
	}
}

// TestVisible: without a rule all is shown; with one, what gets no true is hidden.
func TestVisible(t *testing.T) {
	q := ask()
	if e := engine(t, "allow := false"); !e.Sees(q.Principal, q.Tool) {
		t.Error("hidden without a rule")
	}
	e := engine(t, "deny contains \"x\" if false\nvisible if { input.action == \"see\"; not \"production\" in input.tool.tags }\nvisible if input.caller.subject == \"root\"")
	other := ask(changes[partTool])
	for _, c := range []struct {
		subject string
		q       *access.Question
		want    bool
	}{{"alice", q, false}, {"root", q, true}, {"alice", other, true}} {
		p := *c.q.Principal
		p.Subject = c.subject
		for range 2 {
			if e.Sees(&p, c.q.Tool) != c.want {
				t.Errorf("%s sees %s: want %v", c.subject, c.q.Tool.ID, c.want)
			}
		}
	}
	if e := engine(t, "allow := true\nvisible if to_number(input.caller.subject) > 0"); e.Sees(q.Principal, q.Tool) {
		t.Error("shown although the rule cannot be evaluated")
	}
}

// TestRefuses: what a policy says by caller and tool alone is certain, rule by rule; what it says by the arguments, the
// call or the time is open until there is a call, also where a rule that is certain stands beside it.
func TestRefuses(t *testing.T) {
	q := ask() // of alice, for a tool with the tag production
	for rules, want := range map[string]bool{
		`allow := true`:                            false,
		`allow := false`:                           true,
		`allow if input.caller.subject == "bob"`:   true,
		`allow if input.caller.subject == "alice"`: false,
		`allow if { input.caller.subject == "bob"; input.arguments.x == 1 }`:                                                                                         false, // by arguments: open
		"allow if input.caller.subject == \"bob\"\nallow if input.time.hour < 25":                                                                                    false,
		"default allow := false\nallow if input.call.task != \"\"":                                                                                                   false,
		"default allow := false\nallow if \"root\" in input.caller.roles":                                                                                            true,
		`allow if bob` + "\nbob if input.caller.subject == \"bob\"":                                                                                                  true,
		`allow if late` + "\nlate if time.now_ns() > 0":                                                                                                              false,
		`allow if count(deny) == 0` + "\ndeny contains \"x\" if input.arguments.x == 1":                                                                              false,
		`deny contains "x" if "production" in input.tool.tags`:                                                                                                       true,
		`deny contains "x" if not input.arguments.ticket`:                                                                                                            false,
		"deny contains \"x\" if not input.arguments.ticket\ndeny contains \"y\" if input.tool.id != \"\"":                                                            true,
		"deny contains \"x\" if not input.arguments.ticket\ndeny contains \"y\" if input.tool.id == \"\"":                                                            false,
		"deny contains \"x\" if { not input.arguments.ticket } { input.call.task == \"\" }\ndeny contains \"y\" if input.tool.id != \"\"\nallow if count(deny) == 0": true,
		"deny contains \"x\" if input.action != \"invoke\"":                                                                                                          false,
		"deny contains \"x\" if object.get(input, \"arguments\", 1) == 1":                                                                                            false, // input as a whole
		"deny contains \"x\" if f(input.tool.id)\nf(id) if { id != \"\"; input.arguments.y }":                                                                        false,
		"deny contains \"x\" if to_number(input.tool.id) > 1":                                                                                                        false, // it cannot answer
		`require_approval contains "x" if input.caller.subject == "alice"`:                                                                                           false,
		"deny contains \"x\" if false\nvisible if false":                                                                                                             false, // Sees hides
		"deny contains \"x\" if input.caller.address == \"192.0.2.1\"":                                                                                               q.Principal.Addr == "192.0.2.1",
	} {
		e := engine(t, rules)
		for range 2 { // evaluated, then kept
			if got := e.Refuses(q.Principal, q.Tool); got != want {
				t.Errorf("%s\nrefuses %v, want %v", rules, got, want)
			}
			if v, err := e.Decide(t.Context(), ask()); want && (err != nil || v.Allow) {
				t.Errorf("%s\nis certain to refuse, and allows a call: %+v %v", rules, v, err)
			}
		}
		if n := e.Stats(); n.Evaluated+n.Kept != 2 {
			t.Errorf("%s\nquestions about lists count as of calls: %+v", rules, n)
		}
	}
}

// TestAudience: principals whom the policy shows different tools have different names; so have
// two policies. A policy that hides nothing has none.
func TestAudience(t *testing.T) {
	alice, mallory, late := ask().Principal, ask(changes[partSubject]).Principal, ask(changes[partSession]).Principal
	name := func(rules string, p *toolkeep.Principal) string {
		t.Helper()
		s, ok := engine(t, rules).Audience(p)
		if !ok {
			t.Fatal("no name")
		}
		return s
	}
	const shown = "allow := true\nvisible if input.caller.subject == \"alice\""
	if name("allow if input.arguments.x == input.caller.subject", alice) != "" {
		t.Error("a policy that hides nothing has a name")
	}
	const refuses = "deny contains \"no\" if input.caller.subject == \"alice\""
	if a := name(refuses, alice); a == "" || a == name(refuses, mallory) || a != name(refuses, late) || a == name(shown, alice) {
		t.Error("the names do not follow what is refused")
	}
	if a := name(shown, alice); a == "" || a == name(shown, mallory) || a != name(shown, late) || a == name(shown+"\nvisible if false", alice) {
		t.Error("the names do not follow what is shown")
	}
	if _, ok := engine(t, "allow := true\nvisible if time.now_ns() > 0").Audience(alice); ok {
		t.Error("what depends on the time has a name")
	}
	if _, ok := engine(t, "allow if time.now_ns() > 0\nvisible := true").Audience(alice); !ok {
		t.Error("the rule for calls decides about names")
	}
}

// TestBuiltins: each builtin of the allow-list exists, and none is not deterministic but the time.
func TestBuiltins(t *testing.T) {
	all := map[string]*ast.Builtin{}
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		all[b.Name] = b
	}
	for _, name := range slices.Concat(builtins, testBuiltins) {
		switch b := all[name]; {
		case b == nil:
			t.Errorf("there is no builtin %s", name)
		case b.IsDeprecated():
			t.Errorf("%s is deprecated", name)
		case b.Nondeterministic && name != "time.now_ns":
			t.Errorf("%s does not depend on its arguments alone", name)
		}
	}
}

// TestPolicyOnlyNarrows: whatever a policy answers, it allows no call that the roles refuse.
func TestPolicyOnlyNarrows(t *testing.T) {
	keep := func(s string) string { return s }
	for _, rules := range []string{"allow := true", "allow := false", `deny contains "x" if true`, `require_approval contains "x" if true`, `allow := "x"`} {
		e := engine(t, rules)
		for _, roles := range []access.Decision{
			{Allowed: true, Checks: []access.Check{{Name: access.CheckRoles, Allowed: true}}},
			{Code: toolkeep.PermissionDenied, Reason: "no role", Checks: []access.Check{{Name: access.CheckRoles, Reason: "no role"}}},
		} {
			d := roles.Consult(t.Context(), e, ask(), keep)
			if d.Allowed && !roles.Allowed || !roles.Allowed && (d.Code != roles.Code || d.Reason != roles.Reason) {
				t.Errorf("%s: %+v", rules, d)
			}
			if d.Allowed != (roles.Allowed && d.Checks[1].Allowed) || len(roles.Checks) != 1 {
				t.Errorf("%s: %+v", rules, d)
			}
		}
	}
}

// BenchmarkRolesAndPolicy measures the decision about a call by roles, and by roles and a policy whose
// answer is kept or made for each call.
func BenchmarkRolesAndPolicy(b *testing.B) {
	a, err := access.New(access.Config{Store: noStore{}, Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, nil }})
	if err != nil {
		b.Fatal(err)
	}
	const rules = "allow if input.tool.risk != \"high\"\ndeny contains \"x\" if input.caller.subject == \"mallory\"\nrequire_approval contains \"amount\" if input.arguments.amount > 1000"
	for _, c := range []struct {
		name string
		keep time.Duration
		asks bool
	}{{"roles", 0, false}, {"kept", time.Hour, true}, {"cold", -1, true}} {
		b.Run(c.name, func(b *testing.B) {
			e, q := engine(b, rules, func(config *Config) { config.KeepFor = c.keep }), ask(func(q *access.Question) { q.Call.Grant = nil })
			b.ReportAllocs()
			for b.Loop() {
				d := a.Authorise(q.Principal, q.Tool, q.Call)
				if c.asks {
					d = d.Consult(context.Background(), e, q, func(s string) string { return s })
				}
				if !d.Allowed {
					b.Fatal(d)
				}
			}
		})
	}
}

type noStore struct{ toolkeep.Watcher }

func (noStore) Apply(context.Context, ...toolkeep.Change) error { return nil }

// BenchmarkDecide measures a policy with 500 pairs of role and tag: found by key, and by looking
// through all, evaluated each time and kept.
func BenchmarkDecide(b *testing.B) {
	var pairs, byRole []string
	for i := range 500 {
		role, tag := fmt.Sprintf("role-%d", i), fmt.Sprintf("tag-%d", i)
		if i == 499 {
			role, tag = "clerk", "production"
		}
		pairs = append(pairs, fmt.Sprintf(`{"role":%q,"tag":%q}`, role, tag))
		byRole = append(byRole, fmt.Sprintf(`%q:[%q]`, role, tag))
	}
	for _, c := range []struct {
		name, rule string
		keep       time.Duration
	}{
		{"cold", "some role in input.caller.roles; some tag in input.tool.tags; tag in data.by_role[role]", -1},
		{"kept", "some role in input.caller.roles; some tag in input.tool.tags; tag in data.by_role[role]", time.Hour},
		{"cold through all", "some g in data.grants; g.role in input.caller.roles; g.tag in input.tool.tags", -1},
	} {
		b.Run(c.name, func(b *testing.B) {
			e, err := try(b, map[string]string{
				"p.rego":    "package toolkeep\nallow if { " + c.rule + " }\ndeny contains \"x\" if input.caller.subject == \"mallory\"\nrequire_approval contains \"amount\" if input.arguments.amount > 1000",
				"data.json": `{"grants":[` + strings.Join(pairs, ",") + `],"by_role":{` + strings.Join(byRole, ",") + `}}`,
			}, func(config *Config) { config.KeepFor = c.keep })
			if err != nil {
				b.Fatal(err)
			}
			q := ask()
			b.ReportAllocs()
			for b.Loop() {
				if v, err := e.Decide(context.Background(), q); err != nil || !v.Allow {
					b.Fatal(v, err)
				}
			}
		})
	}
}

// BenchmarkRefuses8000 is what a list of 8,000 tools asks: cold is the first of a kind of caller.
func BenchmarkRefuses8000(b *testing.B) {
	tools := make([]*toolkeep.Tool, 8000)
	for i := range tools {
		own := *ask().Tool
		own.ID, own.Digest = fmt.Sprintf("n%d.t%d", i%100, i), fmt.Sprintf("sha256:%064x", i)
		tools[i] = &own
	}
	for name, keep := range map[string]time.Duration{"cold": -1, "kept": time.Hour} {
		b.Run(name, func(b *testing.B) {
			e := engine(b, "deny contains \"x\" if { \"other\" in input.tool.tags; not \"nurse\" in input.caller.roles }", func(c *Config) { c.KeepFor = keep })
			p := ask().Principal
			all := func() {
				for _, tool := range tools {
					if e.Refuses(p, tool) {
						b.Fatal("refused")
					}
				}
			}
			if keep > 0 {
				all()
			}
			b.ReportAllocs()
			for b.Loop() {
				all()
			}
		})
	}
}
