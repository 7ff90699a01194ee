package clientconfig

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// small is an entry that keeps expected files short.
var small = Entry{{"url", "http://h/mcp"}, {"headers", Entry{{"A", "b"}}}}

func TestSet(t *testing.T) {
	for _, x := range []struct{ name, client, file, want string }{
		{"no file", "cursor", "", "{\n  \"mcpServers\": {\"toolkeep\": {\n    \"url\": \"http://h/mcp\",\n    \"headers\": {\n      \"A\": \"b\"\n    }\n  }}\n}\n"},
		{"other settings", "gemini-cli", "{\n    \"theme\": \"x\"\n}\n",
			"{\n    \"theme\": \"x\",\n    \"mcpServers\": {\"toolkeep\": {\n        \"url\": \"http://h/mcp\",\n        \"headers\": {\n            \"A\": \"b\"\n        }\n    }}\n}\n"},
		{"an empty table", "cursor", "{\n  \"mcpServers\": {}\n}",
			"{\n  \"mcpServers\": {\n    \"toolkeep\": {\n      \"url\": \"http://h/mcp\",\n      \"headers\": {\n        \"A\": \"b\"\n      }\n    }\n  }\n}"},
		{"comments and trailing commas", "zed", "// mine\n{\n\t\"context_servers\": {\n\t\t\"a\": {\"command\": \"a\"}, // the first\n\t},\n}\n",
			"// mine\n{\n\t\"context_servers\": {\n\t\t\"a\": {\"command\": \"a\"}, // the first\n\t\t\"toolkeep\": {\n\t\t\t\"url\": \"http://h/mcp\",\n\t\t\t\"headers\": {\n\t\t\t\t\"A\": \"b\"\n\t\t\t}\n\t\t},\n\t},\n}\n"},
		{"a comment behind the last one", "vscode", "{\n  \"servers\": {\n    \"a\": {} // the last\n  }\n}",
			"{\n  \"servers\": {\n    \"a\": {}, // the last\n    \"toolkeep\": {\n      \"url\": \"http://h/mcp\",\n      \"headers\": {\n        \"A\": \"b\"\n      }\n    }\n  }\n}"},
		{"one line", "cursor", `{"mcpServers":{"a":{"command":"a"}},"x":1}`,
			`{"mcpServers":{"a":{"command":"a"}, "toolkeep": {"url":"http://h/mcp","headers":{"A":"b"}}},"x":1}`},
		{"lines end with CRLF", "cursor", "{\r\n  \"x\": 1\r\n}\r\n",
			"{\r\n  \"x\": 1,\r\n  \"mcpServers\": {\"toolkeep\": {\r\n    \"url\": \"http://h/mcp\",\r\n    \"headers\": {\r\n      \"A\": \"b\"\r\n    }\r\n  }}\r\n}\r\n"},
		{"in place of the old one", "cursor", `{"mcpServers": {"toolkeep": {"command": "old"}, "a": {}}}`,
			`{"mcpServers": { "a": {}, "toolkeep": {"url":"http://h/mcp","headers":{"A":"b"}}}}`},

		{"TOML, no file", "codex", "", "[mcp_servers.toolkeep]\nurl = \"http://h/mcp\"\nheaders = { A = \"b\" }\n"},
		{"TOML, other tables", "codex", "model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = \"a\"\n",
			"model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.toolkeep]\nurl = \"http://h/mcp\"\nheaders = { A = \"b\" }\n"},
		{"TOML, in place of the old one", "codex", "[mcp_servers.toolkeep]\ncommand = \"x\"\n[mcp_servers.\"toolkeep\".env]\nA = \"[b]\"\n\n# about a\n[mcp_servers.a]\ncommand = \"a\"\n",
			"\n# about a\n[mcp_servers.a]\ncommand = \"a\"\n\n[mcp_servers.toolkeep]\nurl = \"http://h/mcp\"\nheaders = { A = \"b\" }\n"},

		{"YAML, no file", "goose", "", "extensions:\n  toolkeep:\n    url: \"http://h/mcp\"\n    headers:\n      A: \"b\"\n"},
		{"YAML, other extensions", "goose", "GOOSE_MODEL: x\n\nextensions:  # mine\n    # about a\n    a:\n        enabled: true\nlast: 1\n",
			"GOOSE_MODEL: x\n\nextensions:  # mine\n    toolkeep:\n      url: \"http://h/mcp\"\n      headers:\n        A: \"b\"\n    # about a\n    a:\n        enabled: true\nlast: 1\n"},
		{"YAML, an empty table", "goose", "extensions: {}\n", "extensions: {\"toolkeep\": {\"url\":\"http://h/mcp\",\"headers\":{\"A\":\"b\"}}}\n"},
		{"YAML, as goose writes it", "goose", "extensions:\n  a:\n    enabled: true\n  toolkeep:\n    enabled: true\n    uri: http://old/mcp\n    env_keys: []\n    args:\n    - mcp\nGOOSE_MODE: auto\n",
			"extensions:\n  toolkeep:\n    url: \"http://h/mcp\"\n    headers:\n      A: \"b\"\n  a:\n    enabled: true\nGOOSE_MODE: auto\n"},
	} {
		t.Run(x.name, func(t *testing.T) {
			got, err := client(t, x.client).Set([]byte(x.file), "toolkeep", small)
			if err != nil || string(got) != x.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, x.want)
			}
		})
	}
}

// files are texts that clients or people write, without an entry of Toolkeep.
var files = map[string][]string{
	"cursor": {"{}", "{ }", "{\n}\n", "{ // none\n}", "\xef\xbb\xbf{\"x\": 1}\r\n", `{"mcpServers": {}}`, "{\n\t\"mcpServers\": {\n\t}\n}", `{"mcpServers":{"a":{}}}`,
		"{\"mcpServers\": {\n  \"a\": {}\n}, \"b\": [1e400, 1.0, {\"c\": null}]}", "{\n  \"mcpServers\": {\n    \"a\": {},\n  },\n}\n",
		"{\"mcpServers\": { /* none */ }}", "{\"mcpServers\": {\"a\": 1, /* c */}}", "/* a */ {\"mcpServers\": {\n// before\n\"a\": {} // behind\n// last\n}} // z\n",
		"{\"a\": \"<&>\u2028\", \"mcpServers\": {\"b\\u0061\": {}}}"},
	"codex": {"", "\n", "a = 1", "a = 1\n", "a = 1\r\n", "a = 1\r\nb = 2", "[mcp_servers]\n", "[mcp_servers.a]\ncommand = 'a'\nargs = [\n  '[x]',\n]\n\n\n",
		"# only\n", "[a]\nb = 1979-05-27T07:32:00Z # c\n[[c]]\nd = [[1, 2], [3]]\n[mcp_servers.toolkeep2]\nx = 1\n"},
	"goose": {"", "a: 1", "a: 1\n", "# only\n", "---\na: 1\n", "a: 1\r\nb: [x]\r\n", "extensions: {}\n", "extensions: {a: {b: 1}}", "extensions:\n  a: &x\n    b: 1\n  c: *x\n", "extensions:\n\n  # c\n\n  a:\n    b: |\n      toolkeep:\n        c\nd: >-\n  e\n  f\n",
		"extensions:\n  a:\n    b: 1", "a: |+\n  b\n\n", "'extensions': {}\n"},
}

// What Set adds, Unset takes away, to the byte; and setting it again changes nothing.
func TestUnsetRestores(t *testing.T) {
	for name, texts := range files {
		c := client(t, name)
		e, _ := c.Entry(overPipe)
		for _, text := range texts {
			set, err := c.Set([]byte(text), "toolkeep", e)
			if err != nil {
				t.Errorf("%s %q: %v", name, text, err)
				continue
			}
			if again, err := c.Set(set, "toolkeep", e); err != nil || !bytes.Equal(again, set) {
				t.Errorf("%s %q: set again: %v\n%s\nafter\n%s", name, text, err, again, set)
			}
			back, had, err := c.Unset(set, "toolkeep")
			if err != nil || !had || string(back) != text {
				t.Errorf("%s: %v %v\n%q\nwas\n%q\nwith the entry\n%s", name, had, err, back, text, set)
			}
			if plain, had, err := c.Unset([]byte(text), "toolkeep"); err != nil || had || string(plain) != text {
				t.Errorf("%s %q: without the entry: %q %v %v", name, text, plain, had, err)
			}
		}
	}
}

func TestRefusedFiles(t *testing.T) {
	for _, x := range []struct{ client, file, want string }{
		{"cursor", "{", "it is not JSON: line 1, column 2"},
		{"cursor", "{\n  \"a\": \"\\qsecret\"}", "it is not JSON: line 2, column 8"},
		{"cursor", "[]", "its top is not an object"},
		{"cursor", "// nothing\n", "it is not JSON"},
		{"cursor", "\xff\xfe{\x00}\x00", "it is not JSON"},
		{"cursor", `{"mcpServers": []}`, "mcpServers in it is not a table of servers"},
		{"cursor", `{"mcpServers": null}`, "mcpServers in it is not a table of servers"},
		{"cursor", `{"mcpServers": {}, "mcpServers": {}}`, "it has mcpServers twice"},
		{"cursor", `{"mcpServers": {"toolkeep": 1, "toolkeep": 2}}`, "it has toolkeep twice"},
		{"cursor", strings.Repeat("[", maxDepth+1), "open brackets"},
		{"zed", strings.Repeat(`{"a":`, maxDepth+1), "open brackets"},
		{"codex", "a = ", "it is not TOML: line 1"},
		{"codex", "a = 1\nb = secret", "it is not TOML: line 2"},
		{"codex", "mcp_servers = 1\n", "mcp_servers in it is not a table of servers"},
		{"codex", "mcp_servers = { a = { command = 'a' } }\n", "mcp_servers in it is written as one value"},
		{"codex", "a = '''\n[mcp_servers.toolkeep]\n'''\n", "form that cannot be changed safely"},
		{"codex", "[mcp_servers]\ntoolkeep = { command = 'a' }\n", "form that cannot be changed safely"},
		{"codex", "x = " + strings.Repeat("[", maxDepth+1), "open brackets"},
		{"goose", "a: [", "it is not YAML"},
		{"goose", "a: 1\na: 2\n", "it is not YAML: line 2"},
		{"goose", "a: *secret\n", "it is not YAML"},
		{"goose", "? {secret: 1}\n: 1\n", "it is not YAML"},
		{"goose", "a: 1\nb: !!int secret\n", "it is not YAML"},
		{"goose", "a: 1\n\"secret\\x1b[2J\": 1\n\"secret\\x1b[2J\": 2\n", "it is not YAML: line 3"},
		{"goose", "extensions: # mine\n  toolkeep:\n    a: 1\n", "form that cannot be changed safely"},
		{"goose", "- a\n", "its top is not an object"},
		{"goose", "{a: 1}\n", "form that cannot be changed safely"},
		{"goose", "a: 1\n---\nb: 2\n", "more than one document"},
		{"goose", "extensions:\n", "extensions in it is not a table of servers"},
		{"goose", "a: &x {b: {c: 1}}\nextensions: *x\n", "form that cannot be changed safely"},
		{"goose", "a: |\n  keeps its last line", "form that cannot be changed safely"},
		{"goose", "a: 1\n...\n", "form that cannot be changed safely"},
	} {
		got, err := client(t, x.client).Set([]byte(x.file), "toolkeep", small)
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s %.60q: %v\n%s", x.client, x.file, err, got)
		}
	}
	for _, text := range []string{strings.Repeat(`"[{",`, maxDepth), strings.Repeat(`"\"[",`, maxDepth), "//" + strings.Repeat("[\"", maxDepth+1) + "\n", "/*" + strings.Repeat("{", maxDepth+1) + "*/"} {
		if _, err := client(t, "cursor").Set([]byte("{\"a\": ["+text+"1]}"), "toolkeep", small); err != nil {
			t.Errorf("brackets in %.10s: %v", text, err)
		}
	}
	if _, err := client(t, "cursor").Set([]byte("/*\"*/"+strings.Repeat("[", maxDepth+1)), "toolkeep", small); err == nil || !strings.Contains(err.Error(), "open brackets") {
		t.Errorf("behind a comment: %v", err)
	}
	if _, err := client(t, "cursor").Set(make([]byte, maxFile+1), "toolkeep", small); err == nil || !strings.Contains(err.Error(), "over 64 MiB") {
		t.Errorf("a large file: %v", err)
	}
}

func TestFind(t *testing.T) {
	for _, c := range Clients() {
		e, err := c.Entry(overPipe)
		if err != nil {
			t.Fatal(err)
		}
		file, err := c.Set(nil, "toolkeep", e)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := c.Find(file, "toolkeep")
		if err != nil || !ok || !Equal(got, e) {
			t.Errorf("%s: %v %v %v", c.Name, got, ok, err)
		}
		other, _ := c.Entry(Server{Command: "/other"})
		if Equal(got, other) || Equal(nil, e) {
			t.Errorf("%s: other entries are equal", c.Name)
		}
		if _, ok, err := c.Find(nil, "toolkeep"); ok || err != nil {
			t.Errorf("%s: in no file: %v %v", c.Name, ok, err)
		}
	}
}

// Whatever a file holds: it is refused, or the entry is there and all else is as it was, also when it is gone again.
func FuzzSet(f *testing.F) {
	names := []string{"cursor", "codex", "goose"}
	for which, name := range names {
		for _, text := range files[name] {
			f.Add(uint8(which), []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, file []byte) {
		c := client(t, names[int(which)%len(names)])
		e, err := c.Entry(overHTTP)
		if err != nil {
			t.Fatal(err)
		}
		without, _, err := c.Unset(file, "toolkeep")
		if err != nil {
			return
		}
		set, err := c.Set(file, "toolkeep", e)
		if err != nil {
			return
		}
		if c.Format == JSON && json.Valid(file) && !json.Valid(set) {
			t.Fatalf("strict JSON is not any more: %q", set)
		}
		back, had, err := c.Unset(set, "toolkeep")
		if err != nil || !had || !bytes.Equal(back, without) && !blank(bytes.TrimPrefix(without, byteOrderMark)) {
			t.Fatalf("%v %v: %q, was %q, with the entry %q", had, err, back, without, set)
		}
	})
}
