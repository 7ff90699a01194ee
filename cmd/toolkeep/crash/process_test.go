// Package crash_test tests the server as a process: what is left after kill -9 at each step of each kind of call,
// and draining.
package crash_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/store/sqlite"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// waitLimit bounds every wait; machines under load are slow.
const waitLimit = 2 * time.Minute

// TestProcess kills and drains one server in every way.
func TestProcess(t *testing.T) {
	l := newLab(t)
	t.Run("killed at each step", l.killedAtEachStep)
	t.Run("killed around an approval", l.killedAroundAnApproval)
	t.Run("killed before the admin key is stored", l.killedAtFirstStart)
	t.Run("killed under load", l.killedUnderLoad)
	t.Run("killed while publishing", l.killedWhilePublishing)
	t.Run("killed while sealing anew", l.killedWhileSealing)
	t.Run("started beside a dying process", l.startedBesideADyingOne)
	t.Run("drained", l.drained)
	t.Run("drained for too long", l.drainedForTooLong)
	t.Run("signalled twice", l.signalledTwice)
}

// lab has the binary and a data directory as a first start leaves it.
type lab struct {
	binary   string
	template string
	tools    int // in the template's catalogue
}

// ownTool appends a note like std.note_append and says that it may be repeated.
const ownTool = `{"schema_version":1,"tool_id":"crash.note","version":"1.0.0","description":"Adds a note; said to be repeatable.",` +
	`"parameters_schema":{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}},` +
	`"side_effects":"writes","idempotent":true,"risk":"low","execution":{"kind":"builtin","binding":{"name":"note.append"}}}`

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{binary: program, template: t.TempDir()}
	s := l.start(t, l.template, "")
	s.must("POST", "/api/v1/tools/register", `{"manifest":`+ownTool+`}`, http.StatusCreated, nil)
	l.tools = s.count("/api/v1/tools")
	s.stop()
	return l
}

// dir returns a data directory like the template.
func (l *lab) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := filepath.WalkDir(l.template, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, l.template))
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, raw, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// process is a server that was started.
type process struct {
	t      *testing.T
	dir    string
	url    string
	key    string
	cmd    *exec.Cmd
	first  chan struct{} // signals the first line of its output; closed at its end
	gone   chan struct{} // closed when it has ended
	stderr bytes.Buffer  // to be read when it is gone
	client *http.Client
}

// launch starts a server; crashAt is TOOLKEEP_CRASH_AT, settings are KEY=VALUE.
func (l *lab) launch(t *testing.T, dir, crashAt string, settings ...string) *process {
	t.Helper()
	args := []string{"serve", "--data", dir, "--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"}
	for _, s := range append([]string{"limits.agent_per_minute=1000000", "limits.agent_tool_per_minute=1000000",
		"limits.global_per_minute=1000000", "limits.agent_concurrent=1000"}, settings...) {
		args = append(args, "--set", s)
	}
	s := &process{t: t, dir: dir, cmd: exec.Command(l.binary, args...), first: make(chan struct{}, 1), gone: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: waitLimit}}
	s.cmd.Env = append(ownEnviron(), "TOOLKEEP_GRPC_ADDR=127.0.0.1:0", "TOOLKEEP_EXAMPLES_TOOLS=true", "TOOLKEEP_CALLS_RECORD_WAIT=5s", "TOOLKEEP_STORE_MAX_WAIT=0", "TOOLKEEP_CALLS_MAX_CPU_WAIT=0", "TOOLKEEP_CRASH_AT="+crashAt)
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.gone)
		r := bufio.NewReader(out)
		if _, err := r.ReadString('\n'); err == nil {
			s.first <- struct{}{}
		}
		close(s.first)
		_, _ = io.Copy(io.Discard, r)
		_ = s.cmd.Wait() // how it ended is in its ProcessState
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it is gone already if all went well
		<-s.gone
		s.client.CloseIdleConnections()
		if t.Failed() && s.stderr.Len() > 0 {
			t.Logf("process %d (crash at %q) wrote:\n%s", s.cmd.Process.Pid, crashAt, s.stderr.String())
		}
	})
	return s
}

// start launches a server and waits until it serves.
func (l *lab) start(t *testing.T, dir, crashAt string, settings ...string) *process {
	t.Helper()
	s := l.launch(t, dir, crashAt, settings...)
	if !s.serves() {
		t.Fatalf("the server did not start: %s", s.ended())
	}
	return s
}

// serves waits for the line that says that the server serves; false if it ended.
func (s *process) serves() bool {
	s.t.Helper()
	if !s.listens() {
		return false
	}
	s.read()
	return true
}

// listens is serves for a server whose address and key are unknown.
func (s *process) listens() bool {
	s.t.Helper()
	select {
	case _, ok := <-s.first:
		return ok
	case <-time.After(waitLimit):
		s.t.Fatal("the server neither started nor ended")
		return false
	}
}

// read finds the server's address and its admin key, which is "" if another node has made it.
func (s *process) read() {
	s.t.Helper()
	var where struct {
		URL string `json:"url"`
	}
	raw, err := os.ReadFile(filepath.Join(s.dir, "server.json"))
	if err == nil {
		err = json.Unmarshal(raw, &where)
	}
	if err != nil {
		s.t.Fatalf("the server does not say where it is: %v", err)
	}
	key, err := os.ReadFile(filepath.Join(s.dir, "admin.key"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	s.url, s.key = where.URL, strings.TrimSpace(string(key))
}

// ended waits for the end of the process and returns how it ended.
func (s *process) ended() string {
	s.t.Helper()
	select {
	case <-s.gone:
		return s.cmd.ProcessState.String()
	case <-time.After(waitLimit):
		s.t.Fatal("the process did not end")
		return ""
	}
}

func (s *process) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// freeze suspends the process; SIGCONT ends it.
func (s *process) freeze() {
	s.t.Helper()
	if err := servertest.Freeze(s.cmd.Process); err != nil {
		s.t.Fatal(err)
	}
}

// killed waits for the end and fails if it was not SIGKILL.
func (s *process) killed() {
	s.t.Helper()
	if how := s.ended(); how != "signal: killed" {
		s.t.Fatalf("the process ended with %q, not by SIGKILL", how)
	}
}

// stop drains the server, which must end well.
func (s *process) stop() {
	s.t.Helper()
	s.client.CloseIdleConnections()
	s.signal(syscall.SIGTERM)
	if how := s.ended(); how != "exit status 0" {
		s.t.Fatalf("the drained process ended with %q", how)
	}
}

// do sends one request; the error is a broken connection.
func (s *process) do(method, path, body string) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// must sends one request that must be answered with the status.
func (s *process) must(method, path, body string, want int, into any) {
	s.t.Helper()
	status, raw, err := s.do(method, path, body)
	if err != nil || status != want {
		s.t.Fatalf("%s %s: %d %s %v, want %d", method, path, status, raw, err, want)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(raw, into); err != nil {
		s.t.Fatalf("%s %s: %v in %s", method, path, err, raw)
	}
}

// count returns the total_count of a list.
func (s *process) count(path string) int {
	s.t.Helper()
	var list struct {
		Total int `json:"total_count"`
	}
	s.must("GET", path, "", http.StatusOK, &list)
	return list.Total
}

// ask is one call over REST.
type ask struct {
	id, tool, key, args string
	async, approval     bool
}

func (a ask) body() string {
	options := map[string]any{}
	if a.key != "" {
		options["idempotency_key"] = a.key
	}
	if a.async {
		options["async_mode"] = true
	}
	if a.approval {
		options["require_approval"] = true
	}
	raw, err := json.Marshal(map[string]any{"tool_id": a.tool, "invocation_id": a.id, "parameters": json.RawMessage(a.args), "execution_options": options})
	if err != nil {
		panic(err) // args are not JSON
	}
	return string(raw)
}

// row is an answer to a call, a record of one, or a refusal.
type row struct {
	ID     string `json:"invocation_id"`
	State  string `json:"state"`  // of a record
	Status any    `json:"status"` // BC-2's, or the number of a refusal
	Code   string `json:"code"`   // of a refusal
	Error  struct {
		Code string `json:"error_code"`
	} `json:"error"`
	Metadata struct {
		Replayed bool `json:"idempotency_replayed"`
	} `json:"execution_metadata"`
	http int
}

// is reports whether the record is in the state, with the code.
func (r row) is(state toolkeep.CallState, code toolkeep.Code) bool {
	return r.State == string(state) && r.Error.Code == string(code)
}

func (r row) String() string {
	return fmt.Sprintf("{http %d, state %q, status %v, code %q%q}", r.http, r.State, r.Status, r.Code, r.Error.Code)
}

// call sends a call; the error is a broken connection.
func (s *process) call(a ask) (row, error) {
	status, raw, err := s.do("POST", "/api/v1/tools/invoke", a.body())
	if err != nil {
		return row{}, err
	}
	r := row{http: status}
	return r, json.Unmarshal(raw, &r)
}

// record reads a call's record; http is 404 where there is none.
func (s *process) record(id string) row {
	s.t.Helper()
	status, raw, err := s.do("GET", "/api/v1/invocations/"+id, "")
	if err != nil || status != http.StatusOK && status != http.StatusNotFound {
		s.t.Fatalf("the record of %s: %d %s %v", id, status, raw, err)
	}
	r := row{http: status}
	if err := json.Unmarshal(raw, &r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// settled waits until no call waits or runs.
func (s *process) settled() {
	s.t.Helper()
	until(s.t, "every call has ended", func() bool {
		return s.count("/api/v1/invocations?state=queued")+s.count("/api/v1/invocations?state=running") == 0
	})
}

// until looks again and again, up to waitLimit.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(waitLimit)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// note is a line that std.note_append wrote.
type note struct {
	ID   string `json:"invocation_id"`
	Text string `json:"text"`
}

// notes reads what the writing tools did; each line is one execution.
func notes(t *testing.T, dir string) []note {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "notes", "default", "default.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []note
	for line := range strings.Lines(string(raw)) {
		var n note
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Fatalf("a note is cut off: %q", line)
		}
		all = append(all, n)
	}
	return all
}

// storeIsSound opens the store of a stopped server: its feed has no gap, nothing
// runs or waits there or in the queue, and no arguments are left sealed.
func storeIsSound(t *testing.T, dir string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "toolkeep.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	journalIsWhole(t, s)
	for what, query := range map[string]string{
		"calls that have not ended":         `SELECT count(*) FROM invocations WHERE state IN ('accepted', 'queued', 'running')`,
		"ended calls with sealed arguments": `SELECT count(*) FROM invocations WHERE sealed IS NOT NULL`,
		"ended calls with a lease":          `SELECT count(*) FROM invocations WHERE lease_owner <> ''`,
		"jobs that wait or run":             `SELECT count(*) FROM river_job WHERE finalized_at IS NULL`,
		"faults that SQLite finds":          `SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'`,
	} {
		var n int
		if err := s.WriteDB().QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
}

// journalIsWhole looks that no number is missing and that each call ended once.
func journalIsWhole(t *testing.T, s *sqlite.Store) {
	t.Helper()
	ended := map[string]bool{}
	for i, e := range storetest.Entries(t.Context(), t, s) {
		if e.Seq != int64(i)+1 {
			t.Fatalf("the journal has %d where %d is due", e.Seq, i+1)
		}
		if e.Call == nil {
			continue
		}
		if ended[e.Call.ID] {
			t.Errorf("call %s ends twice in the journal", e.Call.ID)
		}
		ended[e.Call.ID] = true
	}
}

// chainsAreWhole verifies the audit's chains.
func (s *process) chainsAreWhole() {
	s.t.Helper()
	next, entries := "", 0
	for {
		var page struct {
			Intact  bool
			Next    string
			Entries int
			Faults  json.RawMessage
		}
		s.must(http.MethodGet, "/api/v1/audit/verify?cursor="+next, "", http.StatusOK, &page)
		if entries += page.Entries; !page.Intact {
			s.t.Errorf("the chains are not intact: %s", page.Faults)
		}
		if next = page.Next; next == "" {
			break
		}
	}
	if entries == 0 {
		s.t.Error("no entry was verified")
	}
}

// ownEnviron returns the environment without the settings of another server on this machine.
func ownEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "TOOLKEEP_") || strings.HasPrefix(e, "L03_")
	})
}
