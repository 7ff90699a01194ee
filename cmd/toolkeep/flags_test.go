package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// goWords are words of the libraries that read flags.
var goWords = regexp.MustCompile(`strconv|parsing "|invalid syntax|out of range|time: |unknown unit|missing unit|invalid duration|invalid argument`)

// TestFlagsSayWhatTheyTake gives every flag of every command values that it cannot take.
func TestFlagsSayWhatTheyTake(t *testing.T) {
	refused := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		c.InheritedFlags() // merges them into Flags
		c.Flags().VisitAll(func(f *pflag.Flag) {
			for _, value := range []string{"many", "5q", "7", "-1", "1.5", "", "99999999999999999999999999"} {
				err := c.ParseFlags([]string{"--" + f.Name + "=" + value})
				if _, twice := errors.AsType[*twiceError](err); err == nil || twice {
					continue
				}
				refused++
				text := c.FlagErrorFunc()(c, err).Error()
				if goWords.MatchString(text) || !strings.Contains(text, "--"+f.Name) {
					t.Errorf("%s --%s=%s: %s", c.CommandPath(), f.Name, value, text)
				}
			}
		})
	}
	walk((&app{}).root())
	if refused < 100 {
		t.Errorf("only %d values were refused", refused)
	}
}

// TestFlagsGivenTwice: a flag that takes one value refuses a second one that differs, of every command.
func TestFlagsGivenTwice(t *testing.T) {
	root := (&app{}).root()
	for _, args := range []string{"apply -f A -f B", "tools --namespace a --namespace=b", "tools --jq .a --jq .b", "tools -o json --output yaml",
		"search --limit 3 --limit 4", "lifecycle --yes --yes=false", "tools --data a --data b"} {
		c, rest, err := root.Find(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ParseFlags(rest); err == nil || !strings.Contains(c.FlagErrorFunc()(c, err).Error(), "takes one value and is given two") {
			t.Errorf("%s: %v", args, err)
		}
	}
	for _, args := range []string{"export --tool a --tool b", "apply -f A -f A", "serve --set a=1 --set b=2"} {
		c, rest, _ := (&app{}).root().Find(strings.Fields(args))
		if err := c.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestJSONOfOwnErrors: --json prints the error of the command itself too.
func TestJSONOfOwnErrors(t *testing.T) {
	withoutSettings(t)
	t.Setenv("TOOLKEEP_DATA", t.TempDir())
	t.Setenv("TOOLKEEP_URL", "")
	for command, want := range map[string]struct {
		exit  int
		kind  string
		words string
	}{
		"search --limit many x --json":                           {exitUsage, "about:blank", `--limit takes a whole number, not "many"`},
		"search --json --no-such-flag x":                         {exitUsage, "about:blank", "unknown flag: --no-such-flag"},
		"search --json":                                          {exitUsage, "about:blank", "argument"},
		"tools --json":                                           {exitUnavailable, "about:blank", "server"},
		"config check --json --set http.addr=nowhere":            {exitUsage, "urn:toolkeep:error:E3008", "is not an address"},
		"config check --json --set limits.agent_per_minute=many": {exitUsage, "urn:toolkeep:error:E3008", "is not a whole number"},
		"config check --json --set x":                            {exitUsage, "about:blank", "write KEY=VALUE"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), func() {}, strings.Fields(command), strings.NewReader(""), &stdout, &stderr)
		var p problem
		if err := json.Unmarshal(stdout.Bytes(), &p); err != nil {
			t.Errorf("%s: %v: %s %s", command, err, stdout.String(), stderr.String())
			continue
		}
		if code != want.exit || p.ExitCode != code || p.Type != want.kind || !strings.Contains(p.Detail, want.words) || stderr.Len() == 0 {
			t.Errorf("%s: exit %d: %s %s", command, code, stdout.String(), stderr.String())
		}
	}
}

// TestConfigCheckReportsAll: faults of each part of the settings come together, each once.
func TestConfigCheckReportsAll(t *testing.T) {
	withoutSettings(t)
	dir := t.TempDir()
	roles := writeFile(t, dir, "roles.yaml", "roles:\n  clerk:\n    alow: []\n  other:\n    allow: 5\n")
	file := writeFile(t, dir, "toolkeep.yaml", "http: {addr: nowhere}\nlimits: {agent_per_minute: lots}\naccess: {roles_file: "+roles+"}\n"+
		"egress: {ca_files: [/no/such/file]}\nfiles: {roots: ['/srv/{tenat}']}\ntls: {cert: /no/cert, key: /no/key}\n")
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), func() {}, []string{"config", "check", "--json", "--config", file}, strings.NewReader(""), &stdout, &stderr)
	var p problem
	if err := json.Unmarshal(stdout.Bytes(), &p); err != nil || code != exitUsage {
		t.Fatalf("exit %d, %v: %s%s", code, err, stdout.String(), stderr.String())
	}
	all, _ := p.Details["errors"].([]any)
	for _, want := range []string{"/http/addr", "/limits/agent_per_minute", "/roles/clerk/alow", "/roles/other/allow", "/egress", "/files/roots", "/tls"} {
		n := 0
		for _, f := range all {
			f := f.(map[string]any)
			if f["pointer"] == want {
				n++
				if strings.HasPrefix(want, "/roles/") && !strings.Contains(f["message"].(string), roles+", line ") {
					t.Errorf("%v has no place", f)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d faults of %s: %s", n, want, stdout.String())
		}
	}
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// withoutSettings takes what the tests' own environment sets out of that of the command.
func withoutSettings(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "TOOLKEEP_") {
			t.Setenv(name, "") // it is there again after the test
			os.Unsetenv(name)
		}
	}
}

// config check finds roles that a proxy may give and no rule defines, and says whom signing.required locks out.
func TestConfigCheckOfSigning(t *testing.T) {
	withoutSettings(t)
	check := func(settings string) (int, string) {
		var out bytes.Buffer
		file := writeFile(t, t.TempDir(), "toolkeep.yaml", settings)
		code := run(context.Background(), func() {}, []string{"config", "check", "--config", file}, strings.NewReader(""), &out, &out)
		return code, out.String()
	}
	const keys = "proxy: {keys: ['env://TOOLKEEP_SECRET_X'], roles: "
	for _, x := range []struct {
		settings string
		code     int
		want     string
	}{
		{keys + "[agent]}\n", exitOK, "The settings are valid."},
		{keys + "[agent, agnet]}\n", exitUsage, "did you mean agent?"},
		{keys + "[clerk]}\nroles: {clerk: {allow: [{tools: [std.*]}]}}\n", exitOK, "The settings are valid."},
		{"signing: {required: [rest]}\n", exitOK, "note: signing.required is set, and signing.keys is not"},
	} {
		if code, out := check(x.settings); code != x.code || !strings.Contains(out, x.want) {
			t.Errorf("%s: exit %d, %s", x.settings, code, out)
		}
	}
	if _, out := check("signing: {required: [rest], keys: ['env://TOOLKEEP_SECRET_X']}\n"); strings.Contains(out, "note:") {
		t.Error(out)
	}
}
