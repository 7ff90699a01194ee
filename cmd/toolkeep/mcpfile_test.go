package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadMCPFile(t *testing.T) {
	env := map[string]string{"TOKEN": "t0", "HOME": "/home/me"}
	lookup := func(n string) (string, bool) { v, ok := env[n]; return v, ok }
	for _, c := range []struct{ name, file, want string }{
		{"claude", `{"mcpServers": {"My Files": {"command": "npx", "args": ["-y", "files", "${HOME}"], "env": {"A": "x", "N": 3}}}}`,
			"my-files stdio [npx -y files /home/me] map[A:x N:3]  map[]"},
		{"claude http", `{"mcpServers": {"api": {"type": "http", "url": "https://${HOST:-h.example}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}`,
			"api http [] map[] https://h.example/mcp map[Authorization:Bearer t0]"},
		{"cursor", `{"mcpServers": {"remote": {"url": "https://h.example/mcp", "headers": {"X": "${env:TOKEN}"}}}}`,
			"remote http [] map[] https://h.example/mcp map[X:t0]"},
		{"vs code", "{\n// comment\n\"inputs\": [], \"servers\": {\"old\": {\"type\": \"sse\", \"url\": \"http://h.example/sse\"},}, }",
			"old sse [] map[] http://h.example/sse map[]"},
		{"input", `{"servers": {"p": {"command": "p", "env": {"K": "${input:key}"}}}}`, "p: it needs ${input:key}"},
		{"unset", `{"mcpServers": {"p": {"command": "p", "args": ["${NOPE}"]}}}`, "p: the variable NOPE"},
		{"disabled", `{"mcpServers": {"p": {"command": "p", "disabled": true}}}`, "p: it is disabled"},
		{"no name", `{"mcpServers": {"42": {"command": "p"}}}`, "42: its name has no letter"},
		{"same name", `{"mcpServers": {"a b": {"command": "p"}, "a-b": {"command": "q"}}}`,
			"a-b stdio [p] map[]  map[]; a-b: its name becomes a-b"},
		{"bom", "\xef\xbb\xbf" + `{"mcpServers": {"p": {"command": "p"}}}`, "p stdio [p] map[]  map[]"},
		{"gemini", `{"mcpServers": {"p": {"httpUrl": "https://h.example/mcp", "headers": {"X": "y"}}}}`, "p http [] map[] https://h.example/mcp map[X:y]"},
		{"zed", `{"theme": "x", "context_servers": {"p": {"source": "custom", "command": "p", "args": ["a"], "env": {"K": "v"}}, "q": {"url": "https://h.example/mcp"}, "r": {"enabled": false, "command": "r"}}}`,
			"p stdio [p a] map[K:v]  map[]; q http [] map[] https://h.example/mcp map[]; r: it is disabled"},
		{"zed, older", `{"context_servers": {"p": {"command": {"path": "p", "args": ["a"], "env": {"K": "v"}}, "settings": {}}}}`, "p stdio [p a] map[K:v]  map[]"},
		{"kind", `{"mcpServers": {"p": {"type": "carrier", "url": "http://x"}}}`, `p: its type "carrier"`},
		{"empty", `{"mcpServers": {}}`, "error: it names no servers"},
		{"no json", `{`, "error: it is not JSON"},
		{"one is broken", `{"mcpServers": {"a": {"command": "p", "args": "x"}, "b": {"command": "q"}, "c": 5}}`,
			`a: it cannot be read: the value at "/args" does not have the form of a client's file; b stdio [q] map[]  map[]; c: it cannot be read: the value at "" does not have`},
		{"twice", `{"mcpServers": {"a": {"command": "p"}, "a": {"command": "q"}}}`, "error: it cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readMCPFile([]byte(c.file), lookup)
			var parts []string
			if err != nil {
				parts = append(parts, "error: "+err.Error())
			}
			for _, s := range got {
				if s.Problem != "" {
					parts = append(parts, s.Name+": "+s.Problem)
					continue
				}
				parts = append(parts, fmt.Sprint(s.Name, " ", s.Spec.Transport, " ", s.Spec.Command, " ", s.Spec.Env, " ", s.Spec.URL, " ", s.Spec.Headers))
			}
			if all := strings.Join(parts, "; "); !strings.HasPrefix(all, c.want) {
				t.Errorf("got  %s\nwant %s", all, c.want)
			}
		})
	}
}

// Programs run in a folder of their own, so that relative paths are those of the folder where the user
// stands, on the command line and in a client's file alike.
func TestRelativePathsAreTheUsers(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"server.py", "run", "clients.json"} {
		text := ""
		if name == "clients.json" {
			text = `{"mcpServers": {"p": {"command": "python3", "args": ["server.py", "run", "-x", "none.py", "."]}, "h": {"url": "http://127.0.0.1:9/mcp"}, "i": {"url": "http://10.0.0.1/mcp"}}}`
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := fmt.Sprint([]string{"python3", filepath.Join(dir, "server.py"), "run", "-x", "none.py", dir})
	o := importMCP{}
	got, err := o.servers([]string{"p", "python3", "server.py", "run", "-x", "none.py", "."}, 1)
	if err != nil || fmt.Sprint(got[0].Spec.Command) != want {
		t.Errorf("%v %v, want %s", got, err, want)
	}
	o = importMCP{spec: serverSpec{Dir: "."}}
	if got, err = o.servers([]string{"p", "python3", "server.py"}, 1); err != nil || fmt.Sprint(got[0].Spec.Command) != "[python3 server.py]" || got[0].Spec.Dir != dir {
		t.Errorf("with --dir: %v %v", got, err)
	}
	o = importMCP{file: "clients.json", spec: serverSpec{CallTimeoutS: 120}}
	got, err = o.servers(nil, -1)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v %v", got, err)
	}
	if s := got[2].Spec; fmt.Sprint(s.Command) != want || s.CallTimeoutS != 120 {
		t.Errorf("%+v", s)
	}
	// The user typed no address: one of this machine may be reached, one of the network needs --allow.
	if fmt.Sprint(got[0].Spec.Network) != "[{127.0.0.1 9}]" || got[1].Spec.Network != nil {
		t.Errorf("%v %v", got[0].Spec.Network, got[1].Spec.Network)
	}
}
