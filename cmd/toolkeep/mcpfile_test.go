package main

import (
	"fmt"
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
		{"kind", `{"mcpServers": {"p": {"type": "carrier", "url": "http://x"}}}`, `p: its type "carrier"`},
		{"empty", `{"mcpServers": {}}`, "error: it names no servers"},
		{"no json", `{`, "error: it is not JSON"},
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
