package clientconfig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var (
	overHTTP = Server{URL: "http://127.0.0.1:8080/mcp", Key: "tk_key"}
	overPipe = Server{Command: "/usr/local/bin/toolkeep", Args: []string{"--data", "/srv/tool keep", "mcp"}, Env: Entry{{"TOOLKEEP_KEY", "tk_key"}}}
)

// The schemas are written from each client's documentation, whose address they have.
func TestEntriesFulfilTheDocumentedSchema(t *testing.T) {
	for _, c := range Clients() {
		t.Run(c.Name, func(t *testing.T) {
			file := filepath.Join("testdata", "schemas", c.Name+".json")
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(raw), c.Docs) {
				t.Errorf("%s does not name %s", file, c.Docs)
			}
			schema, err := jsonschema.NewCompiler().Compile(file)
			if err != nil {
				t.Fatal(err)
			}
			check := func(e Entry) error {
				v, err := jsonschema.UnmarshalJSON(strings.NewReader(compact(e)))
				if err != nil {
					t.Fatal(err)
				}
				return schema.Validate(v)
			}
			for _, s := range []Server{overHTTP, overPipe} {
				if s.URL != "" && !c.HTTP {
					continue
				}
				e, err := c.Entry(s)
				if err != nil {
					t.Fatal(err)
				}
				if err := check(e); err != nil {
					t.Error(err)
				}
				for i := range e { // the schema is one that can fail
					wrong := append(Entry{}, e...)
					wrong[i].Name += "x"
					if err := check(wrong); err == nil {
						t.Errorf("the schema takes a member %s", wrong[i].Name)
					}
				}
			}
		})
	}
}

func TestPaths(t *testing.T) {
	older := "/home/ada/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
	places := map[string]Place{
		"linux":   {GOOS: "linux", Home: "/home/ada"},
		"darwin":  {GOOS: "darwin", Home: "/Users/ada"},
		"windows": {GOOS: "windows", Home: `C:\Users\ada`},
	}
	for _, x := range []struct{ client, place, env, exists, want string }{
		{"claude-code", "linux", "", "", "/home/ada/.claude.json"},
		{"claude-code", "windows", "", "", `C:\Users\ada\.claude.json`},
		{"claude-code", "linux", "CLAUDE_CONFIG_DIR=/etc/claude", "", "/etc/claude/.claude.json"},
		{"claude-desktop", "linux", "", "", "/home/ada/.config/Claude/claude_desktop_config.json"},
		{"claude-desktop", "darwin", "", "", "/Users/ada/Library/Application Support/Claude/claude_desktop_config.json"},
		{"claude-desktop", "windows", "", "", `C:\Users\ada\AppData\Roaming\Claude\claude_desktop_config.json`},
		{"cursor", "darwin", "", "", "/Users/ada/.cursor/mcp.json"},
		{"vscode", "linux", "XDG_CONFIG_HOME=/cfg", "", "/cfg/Code/User/mcp.json"},
		{"vscode", "linux", "XDG_CONFIG_HOME=not/absolute", "", "/home/ada/.config/Code/User/mcp.json"},
		{"vscode", "darwin", "", "", "/Users/ada/Library/Application Support/Code/User/mcp.json"},
		{"vscode", "windows", `APPDATA=D:\Roaming`, "", `D:\Roaming\Code\User\mcp.json`},
		{"windsurf", "linux", "", "", "/home/ada/.codeium/windsurf/mcp_config.json"},
		{"zed", "linux", "XDG_CONFIG_HOME=/cfg", "", "/cfg/zed/settings.json"},
		{"zed", "darwin", "XDG_CONFIG_HOME=/cfg", "", "/Users/ada/.config/zed/settings.json"},
		{"zed", "windows", "", "", `C:\Users\ada\AppData\Roaming\Zed\settings.json`},
		{"gemini-cli", "linux", "", "", "/home/ada/.gemini/settings.json"},
		{"codex", "linux", "", "", "/home/ada/.codex/config.toml"},
		{"codex", "linux", "CODEX_HOME=/cfg/codex", "", "/cfg/codex/config.toml"},
		{"goose", "linux", "", "", "/home/ada/.config/goose/config.yaml"},
		{"goose", "windows", "", "", `C:\Users\ada\AppData\Roaming\Block\goose\config\config.yaml`},
		{"cline", "linux", "", "", "/home/ada/.cline/data/settings/cline_mcp_settings.json"},
		{"cline", "linux", "", older, older},
		{"cline", "linux", "CLINE_DATA_DIR=/cline", "", "/cline/settings/cline_mcp_settings.json"},
		{"cline", "linux", "CLINE_MCP_SETTINGS_PATH=/cline.json", older, "/cline.json"},
	} {
		p := places[x.place]
		p.Getenv = func(name string) string {
			if key, value, _ := strings.Cut(x.env, "="); key == name {
				return value
			}
			return ""
		}
		p.Exists = func(path string) bool { return path == x.exists }
		if got := client(t, x.client).Path(p); got != x.want {
			t.Errorf("%s on %s with %q: %s, want %s", x.client, x.place, x.env, got, x.want)
		}
	}
}

func client(t testing.TB, name string) Client {
	t.Helper()
	for _, c := range Clients() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no client %s", name)
	return Client{}
}

func TestDollarSignsAreRefused(t *testing.T) {
	for _, s := range []Server{
		{URL: "http://127.0.0.1:1/${env:HOME}"},
		{Command: "/opt/$x/toolkeep"},
		{Command: "toolkeep", Args: []string{"--data", "/srv/$x"}},
		{Command: "toolkeep", Env: Entry{{"TOOLKEEP_URL", "http://$x"}}},
	} {
		if _, err := client(t, "cursor").Entry(s); err == nil || !strings.Contains(err.Error(), "dollar sign") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// Clients are in the order of their names, each entry has its key once, and docs/connect.md has them all.
func TestClients(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "connect.md"))
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for _, c := range Clients() {
		over := "program"
		if c.HTTP {
			over = "HTTP"
		}
		row := regexp.MustCompile("(?m)^\\| `" + c.Name + "` \\| " + over + " \\| .* <" + regexp.QuoteMeta(c.Docs) + "> \\|$")
		if !row.Match(page) {
			t.Errorf("docs/connect.md has no row %s", row)
		}
		if c.Name <= last {
			t.Errorf("%s stands behind %s", c.Name, last)
		}
		last = c.Name
		for _, s := range []Server{overHTTP, overPipe} {
			if e, err := c.Entry(s); err != nil || !json.Valid([]byte(compact(e))) || c.HTTP && strings.Count(compact(e), "tk_key") != 1 {
				t.Errorf("%s: %v %v", c.Name, e, err)
			}
		}
	}
}
