package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"github.com/toolkeep/toolkeep"
)

// fileServer is one server in a client's configuration file.
type fileServer struct {
	Name    string
	Spec    serverSpec
	Problem string // why it cannot be imported, "" if it can
	Off     bool   // disabled in the file
}

// serverSpec is the API's definition of an MCP server; upstream.Spec documents the fields.
type serverSpec struct {
	Transport    string              `json:"transport,omitempty"`
	Command      []string            `json:"command,omitempty"`
	Env          map[string]string   `json:"env,omitempty"`
	Dir          string              `json:"dir,omitempty"`
	URL          string              `json:"url,omitempty"`
	Headers      map[string]string   `json:"headers,omitempty"`
	Network      []toolkeep.HostPort `json:"network,omitempty"`
	Session      string              `json:"session,omitempty"`
	Capabilities []string            `json:"capabilities,omitempty"`
	OnChange     string              `json:"on_change,omitempty"`

	CallTimeoutS  float64 `json:"call_timeout_s,omitempty"`
	StartTimeoutS float64 `json:"start_timeout_s,omitempty"`
	MaxSessions   int     `json:"max_sessions,omitempty"`

	Registry *registryNote `json:"registry,omitempty"`
}

// mcpServersFile is the configuration file of Claude, Cursor, Gemini CLI, VS Code and Zed. They differ in the name of the list and
// in the syntax of variables.
type mcpServersFile struct {
	MCPServers fileEntries `json:"mcpServers"` // Claude, Cursor, Windsurf
	Servers    fileEntries `json:"servers"`    // VS Code's mcp.json
	MCP        struct {    // VS Code's settings.json
		Servers fileEntries `json:"servers"`
	} `json:"mcp"`
	ContextServers fileEntries `json:"context_servers"` // Zed
}

// fileEntries are read one by one, so that a broken one keeps no other from being imported.
type fileEntries map[string]jsontext.Value

type fileEntry struct {
	Type      string            `json:"type"` // stdio, http, streamable-http, sse
	Transport string            `json:"transport"`
	Command   fileCommand       `json:"command"`
	Args      []string          `json:"args"`
	Env       map[string]any    `json:"env"`
	EnvFile   string            `json:"envFile"`
	Cwd       string            `json:"cwd"`
	URL       string            `json:"url"`
	ServerURL string            `json:"serverUrl"`
	HTTPURL   string            `json:"httpUrl"` // Gemini CLI: streamable HTTP, where url is SSE
	Headers   map[string]string `json:"headers"`
	Disabled  bool              `json:"disabled"`
	Enabled   *bool             `json:"enabled"` // Zed
}

// fileCommand is a program, or Zed's older object of program, arguments and environment.
type fileCommand struct {
	Path string         `json:"path"`
	Args []string       `json:"args"`
	Env  map[string]any `json:"env"`
}

func (c *fileCommand) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return jsonv2.Unmarshal(raw, &c.Path)
	}
	type object fileCommand
	return jsonv2.Unmarshal(raw, (*object)(c))
}

// readMCPFile parses the servers in a client's file: JSON, or JSON with comments and trailing commas. lookup reads
// environment variables.
func readMCPFile(raw []byte, lookup func(string) (string, bool)) ([]fileServer, error) {
	plain, err := hujson.Standardize(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))) // Windows editors write the BOM
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	var f mcpServersFile
	if err := jsonv2.Unmarshal(plain, &f); err != nil {
		return nil, notOfTheForm(err)
	}
	entries := f.MCPServers
	for _, more := range []fileEntries{f.Servers, f.MCP.Servers, f.ContextServers} {
		if len(entries) == 0 {
			entries = more
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("it names no servers: mcpServers (Claude, Cursor), servers (VS Code) and context_servers (Zed) are not there")
	}
	var all []fileServer
	taken := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		s := fileServer{Name: serverName(name)}
		var e fileEntry
		if err = jsonv2.Unmarshal(entries[name], &e); err != nil {
			err = notOfTheForm(err)
		} else {
			s.Spec, err = e.spec(lookup)
		}
		if err != nil {
			s.Problem = err.Error()
		}
		switch {
		case s.Name == "":
			s.Name, s.Problem = name, "its name has no letter to make a namespace of"
		case taken[s.Name] != "":
			s.Problem = fmt.Sprintf("its name becomes %s, like that of %q; rename one of them", s.Name, taken[s.Name])
		case e.Disabled || e.Enabled != nil && !*e.Enabled:
			s.Problem, s.Off = "it is disabled in the file", true
		}
		taken[s.Name] = name
		all = append(all, s)
	}
	return all, nil
}

// notOfTheForm names the place of a value of another type than clients write.
func notOfTheForm(err error) error {
	var form *jsonv2.SemanticError
	if errors.As(err, &form) {
		return fmt.Errorf("it cannot be read: the value at %q does not have the form of a client's file", string(form.JSONPointer))
	}
	return fmt.Errorf("it cannot be read: %w", err)
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// serverName turns a client's server name into a namespace.
func serverName(name string) string {
	s := strings.Trim(notInName.ReplaceAllString(strings.ToLower(name), "-"), "-")
	s = strings.TrimLeft(s, "0123456789-")
	return strings.TrimRight(s[:min(len(s), 32)], "-")
}

func (e *fileEntry) spec(lookup func(string) (string, bool)) (serverSpec, error) {
	var s serverSpec
	x := &expander{lookup: lookup}
	kind := e.Type
	if kind == "" {
		kind = e.Transport
	}
	address := e.URL
	if address == "" {
		address = e.ServerURL
	}
	if address == "" && e.HTTPURL != "" {
		address = e.HTTPURL
		if kind == "" {
			kind = "http"
		}
	}
	if e.EnvFile != "" {
		return s, fmt.Errorf("it reads variables from envFile; put them under env, as env://NAME where they are secret")
	}
	switch kind {
	case "stdio", "local":
		s.Transport = "stdio"
	case "http", "streamable-http", "streamableHttp", "remote":
		s.Transport = "http"
	case "sse":
		s.Transport = "sse"
	case "":
		s.Transport = "stdio"
		if e.Command.Path == "" && address != "" {
			s.Transport = "http"
		}
	default:
		return s, fmt.Errorf("its type %q is none of stdio, http and sse", kind)
	}
	if s.Transport == "stdio" {
		if e.Command.Path == "" {
			return s, fmt.Errorf("it has neither a command nor a url")
		}
		s.Command = append(s.Command, x.expand(e.Command.Path))
		for _, a := range slices.Concat(e.Command.Args, e.Args) {
			s.Command = append(s.Command, x.expand(a))
		}
		s.Dir = x.expand(e.Cwd)
		env := maps.Clone(e.Command.Env)
		if env == nil {
			env = e.Env
		} else {
			maps.Copy(env, e.Env)
		}
		for name, v := range env {
			if s.Env == nil {
				s.Env = map[string]string{}
			}
			switch v := v.(type) {
			case nil:
			case string:
				s.Env[name] = x.expand(v)
			default:
				s.Env[name] = fmt.Sprint(v)
			}
		}
		return s, x.err
	}
	if address == "" {
		return s, fmt.Errorf("it has no url")
	}
	s.URL = x.expand(address)
	for name, v := range e.Headers {
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		s.Headers[name] = x.expand(v)
	}
	return s, x.err
}

// expander replaces the variables that clients allow in their files:
// ${env:NAME} (VS Code, Cursor), ${NAME} and ${NAME:-default} (Claude).
type expander struct {
	lookup func(string) (string, bool)
	err    error
}

var fileVariable = regexp.MustCompile(`\$\{([^}]*)\}`)

func (x *expander) expand(s string) string {
	return fileVariable.ReplaceAllStringFunc(s, func(m string) string {
		name := m[2 : len(m)-1]
		name, def, hasDefault := strings.Cut(name, ":-")
		if kind, rest, ok := strings.Cut(name, ":"); ok {
			if kind != "env" {
				x.fail("it needs %s, which only the client can fill in; write the value, or env://NAME for a secret", m)
				return ""
			}
			name = rest
		}
		if v, ok := x.lookup(name); ok {
			return v
		}
		if !hasDefault {
			x.fail("the variable %s of %s is not set in this environment", name, m)
		}
		return def
	})
}

func (x *expander) fail(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
	}
}
