package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/toolkeep/toolkeep/datadir"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__reaper" {
		main() // the reaper of an MCP server's process is started by the path of the binary
	}
	_ = os.Unsetenv("GOGC") // which make test sets and which would stop the pacing of toolkeep's collector
	testscript.Main(m, map[string]func(){"toolkeep": main, "offers": offers, "sqlite3": sqliteShell})
}

// TestScripts runs testdata/script/*.txtar against the real command, each in a
// folder of its own with TOOLKEEP_DATA set. Commands beside testscript's own:
//
//	ready [DIR]       wait until the server of DIR or TOOLKEEP_DATA answers that it is ready
//	rest METHOD PATH [BODY] [HEADER: VALUE…]   a request with the admin key; prints status line and body
//	exits N COMMAND…  run a command that must end with this exit code
//	until REGEXP COMMAND…|GET URL   repeat it until its standard output fits
//	capture NAME REGEXP   set a variable to what the group in REGEXP matches of the last standard output
//	upstream          start an HTTP service at $UPSTREAM that tools can call
//	before TIME TIME  fail unless the first is the earlier one (RFC 3339)
//	address NAME      set a variable to host and port of the server
//	metrics           print what Prometheus reads
//	nowhere TEXT FILE…   fail if a file or folder holds the text, plain or as base64
//	started           wait until the server of TOOLKEEP_DATA says where it is
//	remote [nowhere]  set TOOLKEEP_URL to the server's address, or to one where nothing listens
//	certificates      make ca.pem, and for server, client, stranger NAME.pem and NAME.key; a CA of its own signed the stranger's
//	offering NAME FILE  serve the tools of FILE over HTTP at the address in the variable; $OFFERS is a program that does it over stdio
//	registry          serve at $REGISTRY what recorded.json says, a copy of what a real registry answered
//	asclient CLIENT FILE   list the tools as the client would that has this file
//	sqlite DB FILE    run the SQL of FILE in an SQLite database, made if it is not there
func TestScripts(t *testing.T) { testscript.Run(t, scripts("")) }

// scripts returns the parameters for a folder's scripts.
func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir: filepath.Join("..", "..", "testdata", "script", dir),
		Setup: func(e *testscript.Env) error {
			e.Setenv("TOOLKEEP_DATA", filepath.Join(e.WorkDir, "data"))
			e.Setenv("SERVE", "--addr=127.0.0.1:0")
			e.Setenv("TOOLKEEP_CALLS_RECORD_WAIT", "5s") // scripts read records at once, on machines of any speed
			e.Setenv("TOOLKEEP_STORE_MAX_WAIT", "0")     // and no disk is too slow for them,
			e.Setenv("TOOLKEEP_CALLS_MAX_CPU_WAIT", "0") // and no processor
			e.Setenv("TOOLKEEP_GRPC_ADDR", "127.0.0.1:0")
			e.Setenv("TOOLKEEP_EXAMPLES_TOOLS", "true")
			e.Defer(func() { endServer(filepath.Join(e.WorkDir, "data")) })
			program, err := offersPath()
			e.Setenv("OFFERS", program)
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"ready":    cmdReady,
			"admin":    cmdAdmin,
			"rest":     cmdREST,
			"exits":    cmdExits,
			"until":    cmdUntil,
			"capture":  cmdCapture,
			"upstream": cmdUpstream,
			"nowhere":  cmdNowhere,
			"before":   cmdBefore,
			"metrics":  cmdMetrics,
			"address":  cmdAddress,
			"remote":   cmdRemote,
			"started":  cmdStarted,
			"offering": cmdOffering,
			"sqlite":   cmdSQLite,
			"asclient": cmdAsClient,
			"registry": cmdRegistry,

			"certificates": cmdCertificates,
		},
	}
}

// cmdAdmin restores the administrator as the caller: testscript cannot unset a variable, and an empty TOOLKEEP_KEY
// is refused.
func cmdAdmin(ts *testscript.TestScript, _ bool, _ []string) {
	key, err := os.ReadFile(filepath.Join(ts.Getenv("TOOLKEEP_DATA"), "admin.key"))
	ts.Check(err)
	ts.Setenv("TOOLKEEP_KEY", strings.TrimSpace(string(key)))
}

// waitLimit limits every wait for a server; machines under load are slow.
const waitLimit = 2 * time.Minute

func cmdReady(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.Getenv("TOOLKEEP_DATA")
	if len(args) > 0 {
		dir = ts.MkAbs(args[0])
	}
	deadline := time.Now().Add(waitLimit)
	for time.Now().Before(deadline) {
		info, err := datadir.ReadServerFile(dir)
		if err == nil {
			if resp, err := http.Get(info.URL + "/health/ready"); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					return
				}
			}
		}
		<-time.After(5 * time.Millisecond)
	}
	ts.Fatalf("the server did not become ready")
}

func cmdREST(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: rest METHOD PATH [BODY] [HEADER: VALUE…]")
	}
	info, err := datadir.ReadServerFile(ts.Getenv("TOOLKEEP_DATA"))
	ts.Check(err)
	key, err := os.ReadFile(filepath.Join(ts.Getenv("TOOLKEEP_DATA"), "admin.key"))
	ts.Check(err)
	var body string
	if len(args) > 2 {
		body = args[2]
		if file, ok := strings.CutPrefix(body, "@"); ok {
			body = ts.ReadFile(file)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, args[0], info.URL+args[1], strings.NewReader(body))
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
	req.Header.Set("Content-Type", "application/json")
	for _, h := range args[min(3, len(args)):] {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s\n", resp.Status)
	for _, name := range []string{"Retry-After", "Deprecation", "Sunset", "Content-Type", "Location"} {
		if v := resp.Header.Get(name); v != "" {
			fmt.Fprintf(ts.Stdout(), "%s: %s\n", name, v)
		}
	}
	fmt.Fprintf(ts.Stdout(), "%s\n", raw)
	if (resp.StatusCode >= 400) != neg {
		ts.Fatalf("%s", resp.Status)
	}
}

func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("%s ended with %s, want %s", strings.Join(args[1:], " "), code, args[0])
	}
}
