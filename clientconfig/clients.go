// Package clientconfig knows where MCP clients keep their configuration, and changes one entry of such a file: every
// byte that does not belong to the entry stays as it was. It starts nothing and reaches no network.
package clientconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Format is the syntax of a configuration file.
type Format int

// The formats. JSON includes comments and trailing commas, which some clients allow.
const (
	JSON Format = iota
	TOML
	YAML
)

// String is the format's name in lower case.
func (f Format) String() string { return [...]string{"json", "toml", "yaml"}[f] }

// Client is an MCP client.
type Client struct {
	Name   string // as it is named on the command line, such as "claude-code"
	Title  string
	Docs   string // address of the documentation that the entry follows
	Format Format
	Key    string // name of the table of servers in the file
	HTTP   bool   // it reaches servers by URL; else it only starts programs
	Apply  string // what makes it read the file again

	path  func(Place) string
	entry func(Server) Entry
}

// Place is a machine and a user, as far as the places of files depend on them.
type Place struct {
	GOOS   string // as in runtime.GOOS
	Home   string // the user's home folder, absolute
	Getenv func(string) string
	Exists func(path string) bool
}

// Here returns the place of this process. It fails if the user has no home folder.
func Here() (Place, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return Place{}, fmt.Errorf("the home folder is not known: %w", err)
	}
	return Place{GOOS: runtime.GOOS, Home: home, Getenv: os.Getenv, Exists: func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}}, nil
}

// Elsewhere returns the place of a user of another machine, with a home folder and variables as the system's shell names them: ~, and
// on Windows %USERPROFILE% and %APPDATA%. goos is as in runtime.GOOS.
func Elsewhere(goos string) Place {
	p := Place{GOOS: goos, Home: "~", Getenv: func(string) string { return "" }, Exists: func(string) bool { return false }}
	if goos == "windows" {
		p.Home = "%USERPROFILE%"
		p.Getenv = func(name string) string {
			if name == "APPDATA" {
				return "%APPDATA%"
			}
			return ""
		}
	}
	return p
}

// Server is what a client needs to know of Toolkeep: URL and Key, or, if URL is "", Command, Args and Env.
type Server struct {
	URL     string // of the MCP endpoint
	Key     string // text of the API key, sent as Authorization: Bearer
	Command string // absolute path
	Args    []string
	Env     Entry // values are strings
}

// Entry is an object whose members stand in the file in this order.
type Entry []Member

// Member is one of an Entry; Value is a string, bool, int, []string or Entry.
type Member struct {
	Name  string
	Value any
}

// MarshalJSON keeps the order.
func (e Entry) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range e {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(compact(m.Name) + ":" + compact(m.Value))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// compact returns a value as JSON on one line, without the escapes of HTML. Such a text is also valid as a value of YAML,
// and, but for objects, of TOML.
func compact(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("clientconfig: a value of an entry: %v", err)) // an Entry holds what JSON can hold
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Path returns where the client of a user keeps its configuration.
func (c Client) Path(p Place) string { return c.path(p) }

// Entry returns the client's entry for a server. It fails if a text has a dollar sign: some clients replace
// variables in what they read.
func (c Client) Entry(s Server) (Entry, error) {
	texts := append([]string{s.URL, s.Key, s.Command}, s.Args...)
	for _, m := range s.Env {
		texts = append(texts, fmt.Sprint(m.Value))
	}
	for _, text := range texts {
		if text != s.Key && strings.Contains(text, "$") {
			return nil, fmt.Errorf("%q has a dollar sign, which clients read as the beginning of a variable; use a path without one", text)
		}
	}
	return c.entry(s), nil
}

// bearer is the object of headers.
func (s Server) bearer() Entry { return Entry{{"Authorization", "Bearer " + s.Key}} }

// program is the entry of a program in most clients' files.
func (s Server) program() Entry {
	return Entry{{"command", s.Command}, {"args", s.Args}, {"env", s.Env}}
}

// remote returns the entry function of a client that names the address key and wants the members of first before it.
func remote(key string, first ...Member) func(Server) Entry {
	return func(s Server) Entry {
		if s.URL == "" {
			return s.program()
		}
		return append(append(Entry{}, first...), Member{key, s.URL}, Member{"headers", s.bearer()})
	}
}

// typed is remote with the type stdio for programs.
func typed(key string, first ...Member) func(Server) Entry {
	http := remote(key, first...)
	return func(s Server) Entry {
		if s.URL == "" {
			return append(Entry{{"type", "stdio"}}, s.program()...)
		}
		return http(s)
	}
}

// in returns a function for a file below the home folder.
func in(names ...string) func(Place) string {
	return func(p Place) string { return p.join(p.Home, names...) }
}

// join is filepath.Join with the separator of the place.
func (p Place) join(first string, more ...string) string {
	sep := "/"
	if p.GOOS == "windows" {
		sep = `\`
	}
	return strings.Join(append([]string{first}, more...), sep)
}

// config is the folder of programs' configuration: $XDG_CONFIG_HOME or ~/.config, and %APPDATA% on Windows.
func (p Place) config() string {
	if p.GOOS == "windows" {
		return p.from("APPDATA", p.join(p.Home, "AppData", "Roaming"))
	}
	return p.from("XDG_CONFIG_HOME", p.join(p.Home, ".config"))
}

// application is config, and on macOS the folder of applications.
func (p Place) application() string {
	if p.GOOS == "darwin" {
		return p.join(p.Home, "Library", "Application Support")
	}
	return p.config()
}

// from returns the path in a variable, or without one that is absolute another path.
func (p Place) from(variable, otherwise string) string {
	if dir := p.Getenv(variable); filepath.IsAbs(dir) || p.GOOS == "windows" && dir != "" {
		return dir
	}
	return otherwise
}

// IsView tells whether a text is a path below /mcp of the HTTP face; "" is its default.
func IsView(s string) bool { return viewForm.MatchString(s) }

var viewForm = regexp.MustCompile(`^(|auto|all|search|(sets|servers)/[a-z0-9][a-z0-9_-]{0,63})$`)

// Clients returns all clients, by name.
func Clients() []Client {
	return []Client{
		{Name: "claude-code", Title: "Claude Code", Docs: "https://code.claude.com/docs/en/mcp", Key: "mcpServers", HTTP: true,
			Apply: "start a new session of Claude Code", entry: typed("url", Member{"type", "http"}),
			path: func(p Place) string { return p.join(p.from("CLAUDE_CONFIG_DIR", p.Home), ".claude.json") }},
		{Name: "claude-desktop", Title: "Claude Desktop", Docs: "https://modelcontextprotocol.io/quickstart/user", Key: "mcpServers",
			Apply: "quit Claude Desktop and start it again", entry: Server.program,
			path: func(p Place) string { return p.join(p.application(), "Claude", "claude_desktop_config.json") }},
		{Name: "cline", Title: "Cline", Docs: "https://docs.cline.bot/mcp/configuring-mcp-servers", Key: "mcpServers", HTTP: true,
			Apply: "Cline reads it at once", path: clinePath, entry: func(s Server) Entry {
				return append(remote("url", Member{"type", "streamableHttp"})(s), Member{"disabled", false})
			}},
		{Name: "codex", Title: "Codex", Docs: "https://developers.openai.com/codex/mcp", Format: TOML, Key: "mcp_servers", HTTP: true,
			Apply: "start a new session of Codex", path: func(p Place) string { return p.join(p.from("CODEX_HOME", p.join(p.Home, ".codex")), "config.toml") },
			entry: func(s Server) Entry {
				if s.URL == "" {
					return s.program()
				}
				return Entry{{"url", s.URL}, {"http_headers", s.bearer()}}
			}},
		{Name: "cursor", Title: "Cursor", Docs: "https://cursor.com/docs/mcp", Key: "mcpServers", HTTP: true,
			Apply: "restart Cursor", path: in(".cursor", "mcp.json"), entry: typed("url")},
		{Name: "gemini-cli", Title: "Gemini CLI", Docs: "https://geminicli.com/docs/tools/mcp-server", Key: "mcpServers", HTTP: true,
			Apply: "start a new session of Gemini CLI", path: in(".gemini", "settings.json"), entry: remote("httpUrl")},
		{Name: "goose", Title: "goose", Docs: "https://block.github.io/goose/docs/guides/config-files", Format: YAML, Key: "extensions", HTTP: true,
			Apply: "start a new session of goose", path: goosePath, entry: gooseEntry},
		{Name: "vscode", Title: "VS Code", Docs: "https://code.visualstudio.com/docs/agents/reference/mcp-configuration", Key: "servers", HTTP: true,
			Apply: "start the server with the command MCP: List Servers", entry: typed("url", Member{"type", "http"}),
			path: func(p Place) string { return p.join(p.application(), "Code", "User", "mcp.json") }},
		{Name: "windsurf", Title: "Windsurf", Docs: "https://docs.windsurf.com/windsurf/cascade/mcp", Key: "mcpServers", HTTP: true,
			Apply: "press Refresh in Windsurf's list of MCP servers", path: in(".codeium", "windsurf", "mcp_config.json"), entry: remote("serverUrl")},
		{Name: "zed", Title: "Zed", Docs: "https://zed.dev/docs/ai/mcp", Key: "context_servers", HTTP: true,
			Apply: "Zed reads it at once", entry: remote("url"), path: func(p Place) string {
				switch p.GOOS {
				case "windows":
					return p.join(p.config(), "Zed", "settings.json")
				case "darwin":
					return p.join(p.Home, ".config", "zed", "settings.json")
				}
				return p.join(p.config(), "zed", "settings.json")
			}},
	}
}

// clinePath is the file that Cline's programs share, or that of its older extension of VS Code where only that one is.
func clinePath(p Place) string {
	if file := p.Getenv("CLINE_MCP_SETTINGS_PATH"); file != "" {
		return file
	}
	now := p.join(p.from("CLINE_DATA_DIR", p.join(p.Home, ".cline", "data")), "settings", "cline_mcp_settings.json")
	older := p.join(p.application(), "Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json")
	if !p.Exists(now) && p.Exists(older) {
		return older
	}
	return now
}

func goosePath(p Place) string {
	if p.GOOS == "windows" {
		return p.join(p.config(), "Block", "goose", "config", "config.yaml")
	}
	return p.join(p.config(), "goose", "config.yaml")
}

func gooseEntry(s Server) Entry {
	e := Entry{{"enabled", true}, {"name", "toolkeep"}, {"description", "Tools behind Toolkeep"}}
	if s.URL == "" {
		return append(e, Member{"type", "stdio"}, Member{"cmd", s.Command}, Member{"args", s.Args}, Member{"envs", s.Env},
			Member{"env_keys", []string{}}, Member{"timeout", 300})
	}
	return append(e, Member{"type", "streamable_http"}, Member{"uri", s.URL}, Member{"headers", s.bearer()}, Member{"envs", Entry{}},
		Member{"env_keys", []string{}}, Member{"timeout", 300})
}
