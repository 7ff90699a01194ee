package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// unformed are the commands that show neither a list nor an object, and what they write instead.
var unformed = map[string]string{
	"audit export":    "JSON Lines of a standard, chosen by its --format",
	"blobs get":       "the bytes of a result",
	"completion bash": "a script", "completion zsh": "a script", "completion fish": "a script", "completion powershell": "a script",
	"mcp":        "the protocol's messages",
	"policy new": "files, of which it names each",
	"serve":      "where it listens",
}

// TestFormsEverywhere: each command takes -o and --jq, or is one that shows nothing that has a form.
func TestFormsEverywhere(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	root := (&app{}).root()
	root.InitDefaultCompletionCmd()
	walk(root, func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "toolkeep ")
		form := c.Flags().Lookup("output")
		if form == nil || form.Value.Type() != "form" {
			form = c.Flags().Lookup("format")
		}
		has := form != nil && form.Value.Type() == "form" && c.Flags().Lookup("jq") != nil && c.Flags().Lookup("json") != nil
		switch {
		case unformed[name] != "":
			seen[name] = true
			if has {
				t.Errorf("%s takes -o and is among those that do not", name)
			}
		case !has && shows(c):
			t.Errorf("%s takes no -o and --jq: give it to withJSON, or say in unformed what it shows", name)
		}
	})
	for name := range unformed {
		if !seen[name] {
			t.Errorf("there is no command %s", name)
		}
	}
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

// shows reports whether a command does something of its own: groups only name their subcommands or print their help.
func shows(c *cobra.Command) bool {
	if !c.Runnable() {
		return false
	}
	if !c.HasSubCommands() {
		return c.Name() != "help"
	}
	var help strings.Builder
	c.SetOut(&help)
	err := c.RunE(c, nil)
	return !strings.Contains(help.String(), "Available Commands:") && (err == nil || !strings.Contains(err.Error(), "a subcommand is missing"))
}

// answering makes a server whose answer to everything is this JSON, and counts what it is asked.
func answering(t *testing.T, json string) (asked *int) {
	t.Helper()
	asked = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*asked++
		_, _ = w.Write([]byte(json))
	}))
	t.Cleanup(s.Close)
	withoutSettings(t)
	t.Setenv("TOOLKEEP_URL", s.URL)
	t.Setenv("TOOLKEEP_KEY", "tk_x")
	return asked
}

func toolkeepRun(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(context.Background(), func() {}, args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func TestForms(t *testing.T) {
	answering(t, `{"nodes":[{"node":"b","n":9007199254740993,"x":1.10,"yes":"no","v":"1.0","text":"two\nlines <&> é","list":[1,{}],"none":null,"on":true,"..":"dots","like":"b|x"},{"node":"a"}],"total":1e400}`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-o", "jsonpath=$.nodes[*].node"}, "b\na\n"},
		{[]string{"-o", "jsonpath={.nodes[*].node}"}, "b\na\n"},
		{[]string{"-o", "jsonpath={['nodes'][0]['n','x']}"}, "9007199254740993\n1.10\n"},
		{[]string{"-o", "jsonpath=$.nodes[0].list"}, "[\n  1,\n  {}\n]\n"},
		{[]string{"-o", "jsonpath=$.nodes[?@.node=='a']"}, "{\n  \"node\": \"a\"\n}\n"},
		{[]string{"-o", "jsonpath=$.nowhere"}, ""},
		{[]string{"-o", "jsonpath=$.nodes[?match(@.v,'1.*')].node"}, "b\n"},
		{[]string{"-o", "jsonpath=$.nodes[?match(@.text,'two|é')].node"}, ""}, // neither is the whole of it
		{[]string{"-o", "jsonpath=$.nodes[?match(@.v,'2|1\\\\.0')].node"}, "b\n"},
		{[]string{"-o", "jsonpath=$.nodes[?match(@.v,'1.0)(')].node"}, ""},
		{[]string{"-o", "jsonpath=$.nodes[?match(@.node,@.like)].node"}, "b\n"}, // the other has no pattern
		{[]string{"-o", "jsonpath=$.nodes[?search(@.node,@.like)].node"}, "b\n"},
		{[]string{"-o", "jsonpath=$.nodes[*]['v','node']"}, "1.0\nb\na\n"},
		{[]string{"-o", "jsonpath=$.nodes[::-1]['node',?@=='no']"}, "a\nb\nno\n"},
		{[]string{"-o", "jsonpath=$.nodes[0][?@=='b'||@=='1.0'||@=='no']"}, "b\n1.0\nno\n"}, // members by name
		{[]string{"-o", "jsonpath=$..node"}, "b\na\n"},
		{[]string{"-o", "jsonpath=$.nodes[*]['..','node'][?@..nothing..nothing]"}, ""},
		{[]string{"-o", "jsonpath=$.nodes[0]['..']"}, "dots\n"},
		{[]string{"-o", "jsonpath=$..nodes[?@['..']=='.. ..']..node"}, ""},
		{[]string{"-o", "jsonpath=$.nodes[?@.n==9007199254740993].node"}, "b\n"},
		{[]string{"-o", `jsonpath=$.nodes[0]["\u006eode","yes",'v']`}, "b\nno\n1.0\n"},
		{[]string{"-o", "jsonpath=$.total"}, "1e400\n"},
		{[]string{"--jq", ".nodes[].node"}, "b\na\n"},
		{[]string{"--jq", ".nodes[0].n, .nodes[0].x"}, "9007199254740993\n1.10\n"},
		{[]string{"--jq", ".nodes[0].n + 1"}, "9007199254740994\n"},
		{[]string{"--jq", ".nodes[0].text, .nodes[1], .nodes[0].none"}, "two\nlines <&> é\n{\n  \"node\": \"a\"\n}\nnull\n"},
		{[]string{"-o", "json", "--jq", "[.nodes[].node]|length"}, "2\n"},
		{[]string{"--json", "--jq", "empty"}, ""},
		{[]string{"-o", "yaml"}, `nodes:
  - node: b
    "n": 9007199254740993
    x: 1.10
    "yes": "no"
    v: "1.0"
    text: |-
      two
      lines <&> é
    list:
      - 1
      - {}
    none: null
    "on": true
    ..: dots
    like: b|x
  - node: a
total: !!float 1e400
`},
	} {
		if code, out, err := toolkeepRun(append([]string{"nodes"}, c.args...)...); code != 0 || out != c.want || err != "" {
			t.Errorf("%q: exit %d, %q, want %q, %s", c.args, code, out, c.want, err)
		}
	}
	for _, args := range [][]string{{"-o", "json"}, {"--output=json"}, {"--json"}} {
		if code, out, _ := toolkeepRun(append([]string{"nodes"}, args...)...); code != 0 || !strings.Contains(out, "\"n\": 9007199254740993") || !strings.Contains(out, "\n  \"total\": 1e400\n") {
			t.Errorf("%q: exit %d, %s", args, code, out)
		}
	}
	_, plain, _ := toolkeepRun("nodes")
	if _, table, _ := toolkeepRun("nodes", "-o", "table"); table != plain || !strings.HasPrefix(plain, "NODE") {
		t.Errorf("-o table: %q, without: %q", table, plain)
	}
}

// TestFormsAreReadFirst: what is wrong with a form is told before a request is sent.
func TestFormsAreReadFirst(t *testing.T) {
	asked := answering(t, `{}`)
	for _, c := range []struct{ command, want string }{
		{"nodes --jq .a[", "--jq: .a[ is no jq expression"},
		{"nodes --jq nosuch(1)", "--jq: nosuch(1) is no jq expression"},
		{"nodes --jq=", "--jq: the expression is empty"},
		{"nodes -o jsonpath=$[", "--output: $[ is no jsonpath of RFC 9535"},
		{"nodes -o jsonpath={range.items[*]}{.id}{end}", "is no jsonpath of RFC 9535"},
		{"nodes -o jsonpath=$..a..b..c", "at most 2 times .."},
		{"nodes -o jsonpath=$..a[?count(@..b..c)>0]", "at most 2 times .."},
		{"nodes -o jsonpath", "has its expression after a ="},
		{"nodes -o yml", "did you mean yaml?"},
		{"nodes -o nodes.json", "> writes to a file"},
		{"nodes -o yaml --jq .", "leave -o yaml out"},
		{"nodes -o table --jq .", "leave -o table out"},
		{"nodes --json -o yaml", "--json is -o json"},
		{"export --as mcp --format nothing", "--format: \"nothing\" is not a form"},
		{"call std.hash --jq .[", "--jq: .[ is no jq expression"},
	} {
		if code, out, err := toolkeepRun(strings.Fields(c.command)...); code != exitUsage || !strings.Contains(err, c.want) || out != "" && !strings.Contains(c.command, "json") {
			t.Errorf("%s: exit %d, %s%s", c.command, code, out, err)
		}
	}
	if *asked != 0 {
		t.Errorf("the server was asked %d times", *asked)
	}
}

// TestFormsEnd: an expression that would not end, or that makes too much, ends with an error.
func TestFormsEnd(t *testing.T) {
	answering(t, `{"nodes":[]}`)
	for _, expr := range []string{"\"x\" * 1e9", "error(\"no\")", ".nodes.x"} {
		if code, out, err := toolkeepRun("nodes", "--jq", expr); code != exitToolFailed || out != "" || !strings.Contains(err, "the server has answered, and --jq failed on the answer") {
			t.Errorf("%s: exit %d, %d bytes, %s", expr, code, len(out), err)
		}
	}
}

// TestPathEnds: a jsonpath ends at its time, at its size, and where an evaluation of it breaks off.
func TestPathEnds(t *testing.T) {
	t.Parallel()
	path, err := parsePath("$.*")
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]any{"a": strings.Repeat("x", 100), "b": "y"}
	stop := make(chan struct{})
	defer close(stop)
	if err := findPath(path, v, 1, func(any) error { <-stop; return nil }); err == nil || !strings.Contains(err.Error(), "it took longer than 1ns") {
		t.Error(err)
	}
	if err := findPath(path, v, pathTime, func(any) error { panic("no") }); err == nil || !strings.Contains(err.Error(), "broke off: no") {
		t.Error(err)
	}
	var b strings.Builder
	if err := findPath(path, v, pathTime, func(out any) error { return writeOutput(&b, out, 101) }); err == nil || !strings.Contains(err.Error(), "what it makes is over") || b.Len() != 101 {
		t.Errorf("%d bytes, %v", b.Len(), err)
	}
}

// TestCallForms: -o and --jq of a call are for its result, and with --answer for the whole answer.
func TestCallForms(t *testing.T) {
	answering(t, `{"invocation_id":"i","status":"success","result":{"hash":"2c","n":9007199254740993},"execution_metadata":{}}`)
	for want, args := range map[string][]string{
		"2c\n":               {"--jq", ".hash"},
		"9007199254740993\n": {"-o", "jsonpath=$.n"},
		"hash: \"2c\"\n\"n\": 9007199254740993\n": {"-o", "yaml"},
		"i\n":       {"--answer", "--jq", ".invocation_id"},
		"success\n": {"--jq", ".status", "--json"},
	} {
		if code, out, err := toolkeepRun(append([]string{"call", "std.hash", "text=x"}, args...)...); code != 0 || out != want {
			t.Errorf("%q: exit %d, %q, want %q, %s", args, code, out, want, err)
		}
	}
}

// TestCallFormsOfTheUnfinished: a call that waits is shown in the form that is asked for, and without one by its id.
func TestCallFormsOfTheUnfinished(t *testing.T) {
	answering(t, `{"invocation_id":"i","status":"pending","execution_metadata":{}}`)
	const whole = "{\n  \"invocation_id\": \"i\",\n  \"status\": \"pending\",\n  \"execution_metadata\": {}\n}\n"
	for args, want := range map[string]string{
		"":                               "i\n",
		"-o table":                       "i\n",
		"-o json":                        whole,
		"-o yaml":                        "invocation_id: i\nstatus: pending\nexecution_metadata: {}\n",
		"--jq .hash":                     "",
		"-o jsonpath=$.hash":             "",
		"--answer -o json":               whole,
		"--answer --jq .status":          "pending\n",
		"--answer -o jsonpath=$..status": "pending\n",
	} {
		code, out, err := toolkeepRun(append(strings.Fields("call std.wait --async"), strings.Fields(args)...)...)
		if code != 0 || out != want || !strings.Contains(args, "--answer") && !strings.Contains(err, "toolkeep invocations get i") {
			t.Errorf("%s: exit %d, %q, want %q, %s", args, code, out, want, err)
		}
	}
}

// TestCallSaysAllBesideAFailedForm: what an expression fails on was a call, and what there is to say of it is said.
func TestCallSaysAllBesideAFailedForm(t *testing.T) {
	for answer, wants := range map[string][]string{
		`{"invocation_id":"i","status":"success","result":"x","execution_metadata":{"warnings":[{"code":"E3720","message":"old"}]}}`:                {"warning E3720: old", "failed on the answer", "recorded as i"},
		`{"invocation_id":"i","status":"failed","error":{"error_code":"E3502","name":"T","message":"late"},"execution_metadata":{"warnings":null}}`: {"the tool failed: E3502 T: late", "failed on the answer", "recorded as i"},
	} {
		answering(t, answer)
		code, out, err := toolkeepRun("call", "std.hash", "--answer", "--jq", "error(\"no\")")
		if code != exitToolFailed || out != "" {
			t.Errorf("exit %d, %q", code, out)
		}
		for _, want := range wants {
			if !strings.Contains(err, want) {
				t.Errorf("%q is missing: %s", want, err)
			}
		}
	}
	answering(t, `{"invocation_id":"i","status":"success","result":"x","execution_metadata":{}}`)
	if code, _, err := toolkeepRun("call", "std.hash", "--jq", ".x"); code != exitToolFailed || !strings.Contains(err, "recorded as i") {
		t.Errorf("exit %d, %s", code, err)
	}
}

func TestMeant(t *testing.T) {
	withoutSettings(t)
	for command, want := range map[string]string{
		"tools --namspace x":               "unknown flag: --namspace; did you mean --namespace?",
		"call std.hash --text hello":       "unknown flag: --text; the tool's arguments are written without dashes, as text=VALUE",
		"tools --zzzzzzzzz":                "unknown flag: --zzzzzzzzz\n",
		"serch x":                          `did you mean search or serve?`,
		"import opnapi x":                  `toolkeep import has no "opnapi"; it has functions, grpc, manifest, mcp, openapi, sql, toolbox; did you mean openapi?`,
		"tools helth":                      `did you mean health?`,
		"invocations gett x":               `did you mean get?`,
		"servers lst":                      `did you mean list?`,
		"audit lst":                        `did you mean list?`,
		"import mcp files npx -y pkg":      `unknown shorthand flag: 'y' in -y; if it is one of the server's command: write one NAME, then -- and the command: toolkeep import mcp files -- npx …`,
		"import mcp npx -y pkg":            `write the server's NAME, then -- and the command`,
		"import mcp files npx pkg":         `toolkeep import mcp files -- npx …`,
		"import mcp files http://x/y":      `an address stands after --url: toolkeep import mcp files --url ADDRESS`,
		"import mcp -- npx pkg":            `write one NAME before the --: toolkeep import mcp NAME -- COMMAND ARGS…`,
		"import mcp a b -- npx pkg":        `write one NAME before the --`,
		"import mcp a npx http://x":        `toolkeep import mcp a -- npx …`,
		"import mcp http://x/y":            `toolkeep import mcp NAME --url ADDRESS`,
		"import mcp x --urll y":            `did you mean --url?`,
		"import openapi grpc://h:1/":       "`toolkeep import grpc h:1`, with --plaintext",
		"import manifest grpcs://h:1":      "`toolkeep import grpc h:1`\n",
		"import functions grpc://h:1":      "toolkeep import grpc h:1",
		"import mcp x --url grpc://h":      "toolkeep import grpc h",
		"import openapi mysql://u@h/":      "toolkeep import sql",
		"import grpc grpc://h:1 --dry-run": "write h:1, with --plaintext",
	} {
		if code, _, err := toolkeepRun(strings.Fields(command)...); code != exitUsage || !strings.Contains(err, want) {
			t.Errorf("%s: exit %d, %s, want %s", command, code, err, want)
		}
	}
}

func TestNamespaceMeant(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("namespace") != "" {
			_, _ = w.Write([]byte(`{"tools":[],"total_count":0}`))
			return
		}
		_, _ = w.Write([]byte(`{"tools":[{"tool_id":"std.hash"},{"tool_id":"bookshop.a"},{"tool_id":"bookshop.b"}],"total_count":3}`))
	}))
	t.Cleanup(s.Close)
	withoutSettings(t)
	t.Setenv("TOOLKEEP_URL", s.URL)
	t.Setenv("TOOLKEEP_KEY", "tk_x")
	if _, _, err := toolkeepRun("tools", "--namespace", "bokshop"); !strings.Contains(err, "did you mean the namespace bookshop?") {
		t.Error(err)
	}
	for command, want := range map[string][]string{
		"tools --namespace ":         {"bookshop", "std"},
		"export --as m --namespace ": {"bookshop", "std"},
		"tools -o ":                  forms,
		"export --format ":           forms,
		"export --as ":               {"openai", "mcp"},
		"connect ":                   {"claude-code", "cursor"},
		"describe ":                  {"std.hash", "bookshop.a"},
		"invocations get --out":      {"--output"},
	} {
		_, out, _ := toolkeepRun(append([]string{"__complete"}, strings.Split(command, " ")...)...)
		var offered []string
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			offered = append(offered, word)
		}
		for _, w := range want {
			if !slices.Contains(offered, w) {
				t.Errorf("%s offers %q, not %s", command, offered, w)
			}
		}
	}
}
