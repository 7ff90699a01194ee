package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/datadir"
)

const repository = "../.."

// notRun lists the documents whose sh blocks are not run, with the reason. All others in docs/ are, each in one shell,
// and of the README the section that promises to work.
var notRun = map[string]string{
	"docs/rest.md": "it shows routes in any order, with documents and ids of the reader's own",
	"docs/grpc.md": "face/rpc runs grpcurl, which takes a minute to build",
}

// documents are those to run, with the section of the README.
func documents(t *testing.T) map[string]string {
	files, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{"README.md": "## The first five minutes"}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file := "docs/" + filepath.Base(path)
		if blocks := shellBlocks(string(raw), ""); len(blocks) > 0 && notRun[file] == "" {
			out[file] = ""
		}
	}
	return out
}

// TestDocuments runs the documentation's commands unchanged except for ports, each document against its own server
// with the examples.
func TestDocuments(t *testing.T) {
	for file, section := range documents(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(filepath.Join(repository, file))
			if err != nil {
				t.Fatal(err)
			}
			blocks := shellBlocks(string(raw), section)
			if len(blocks) == 0 {
				t.Fatal("no sh block was found")
			}
			text, flags := strings.Join(blocks, "\n"), []string(nil)
			if file == "docs/sql-tools.md" {
				dir, port := startOrders(t)
				text = strings.ReplaceAll(text, "?host=/run/postgresql", "?host="+dir+"&port="+port)
				flags = []string{"--set=sql.sqlite_roots=$PWD/db", "--set=sql.socket_dirs=" + dir}
			}
			if file == "docs/configuration-as-code.md" {
				flags = []string{"--set=access.roles_file=$PWD/examples/folder/roles.yaml"}
			}
			if file == "docs/results.md" {
				flags = []string{"--set=results.signing_key=file://$PWD/data/secrets/_shared/results"}
			}
			s := startExamples(t, flags...)
			script := strings.NewReplacer("127.0.0.1:8080", s.address, "127.0.0.1:8090", s.bookshop).Replace(text)
			ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
			defer cancel()
			c := exec.CommandContext(ctx, "bash", "-c", expectExits(script))
			c.Dir, c.Env = s.dir, s.env
			out, err := c.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, tail(string(out), 4000))
			}
			// The shell continues after a failing $(…), as the reader would.
			for _, bad := range []string{"command not found", "E3312", "E3004", "urn:toolkeep:error"} {
				if strings.Contains(string(out), bad) {
					t.Errorf("%s: the output has %q:\n%s", file, bad, tail(string(out), 4000))
				}
			}
		})
	}
}

// shellBlocks returns the ```sh blocks of a section, up to the next heading of its level; without a section, of the
// whole text.
func shellBlocks(text, section string) (blocks []string) {
	inside, code := section == "", false
	var block strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case code && line == "```":
			code = false
			blocks = append(blocks, block.String())
			block.Reset()
		case code:
			fmt.Fprintln(&block, line)
		case section != "" && strings.HasPrefix(line, "## "):
			inside = line == section
		case inside && line == "```sh":
			code = true
		}
	}
	return blocks
}

var exitComment = regexp.MustCompile(`^(.*\S)\s+#.*\(exit (\d)\)$`)

// expectExits makes a script that stops at the first command whose exit code differs from the documented one: 0, or
// the comment "(exit N)" on its line.
func expectExits(script string) string {
	var b strings.Builder
	b.WriteString("set -euo pipefail\nended() { [ \"$1\" = \"$2\" ] || { echo \"ended with $2, the document says $1: $3\"; exit 1; }; }\n")
	for line := range strings.Lines(script) {
		m := exitComment.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			b.WriteString(line)
			continue
		}
		fmt.Fprintf(&b, "set +e; %s; ended %s $? %s; set -e\n", m[1], m[2], quote(m[1]))
	}
	return b.String()
}

// exampleServer is the real command with the examples, started in a folder laid out like the repository after `make
// build`.
type exampleServer struct {
	dir, address, bookshop string
	env                    []string
}

// $PWD in flags stands for that folder.
func startExamples(t *testing.T, flags ...string) *exampleServer {
	t.Helper()
	binary, err := exec.LookPath("toolkeep")
	if err != nil {
		t.Fatal(err)
	}
	s := &exampleServer{dir: t.TempDir()}
	examples, err := filepath.Abs(filepath.Join(repository, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	link(t, examples, filepath.Join(s.dir, "examples"))
	if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	link(t, binary, filepath.Join(s.dir, "bin", "toolkeep"))
	s.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "TMPDIR=" + t.TempDir()}

	server := exec.Command("toolkeep", "serve", "--examples", "--data=data", "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--set=grpc.addr=127.0.0.1:0", "--set=examples.addr=127.0.0.1:0")
	for _, f := range flags {
		server.Args = append(server.Args, strings.ReplaceAll(f, "$PWD", s.dir))
	}
	server.Dir, server.Env = s.dir, s.env
	log, err := os.Create(filepath.Join(s.dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil || t.Failed() {
			raw, _ := os.ReadFile(log.Name())
			t.Logf("server: %v\n%s", err, tail(string(raw), 2000))
		}
		log.Close()
	})
	s.address = strings.TrimPrefix(awaitReady(t, filepath.Join(s.dir, "data")), "http://")
	s.bookshop = s.exampleAddress(t)
	return s
}

func link(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Symlink(from, to); err != nil {
		t.Fatal(err)
	}
}

func awaitReady(t *testing.T, data string) string {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		info, err := datadir.ReadServerFile(data)
		if err != nil {
			continue
		}
		resp, err := http.Get(info.URL + "/health/ready")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return info.URL
		}
	}
	t.Fatal("the server did not become ready")
	return ""
}

// exampleAddress finds the bookshop's address in the catalogue.
func (s *exampleServer) exampleAddress(t *testing.T) string {
	t.Helper()
	c := exec.Command("toolkeep", "describe", "bookshop.searchBooks", "--json")
	c.Dir, c.Env = s.dir, s.env
	raw, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var tool struct {
		Manifest struct {
			Execution struct {
				Binding struct {
					Server string `json:"server"`
				} `json:"binding"`
			} `json:"execution"`
		} `json:"manifest"`
	}
	if err := json.Unmarshal(raw, &tool); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(tool.Manifest.Execution.Binding.Server, "http://")
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// TestLinks checks the links between the documents.
func TestLinks(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, filepath.Join(repository, "README.md"), filepath.Join(repository, "CONTRIBUTING.md"), filepath.Join(repository, "RATIONALE.md")) {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			for _, m := range markdownLink.FindAllStringSubmatch(lines.Text(), -1) {
				if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
					continue
				}
				if _, err := os.Stat(filepath.Join(filepath.Dir(file), filepath.FromSlash(m[1]))); err != nil {
					t.Errorf("%s:%d links to %s, which is not there", file, n, m[1])
				}
			}
		}
		if err := lines.Err(); err != nil {
			t.Error(err)
		}
	}
}
