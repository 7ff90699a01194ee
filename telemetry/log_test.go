package telemetry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func call(change func(*toolkeep.Invocation)) *toolkeep.Invocation {
	v := &toolkeep.Invocation{ID: "0199-7", Tenant: "t1", Subject: "agent_456", Session: "s1", Plan: "p1", Task: "k1",
		Face: "rest", KeyID: "key1", ToolID: "clock.now", Version: "1.0.0", Category: "time", Kind: "builtin",
		State: toolkeep.CallSucceeded, CallID: "c1", ArgsSize: 156, ArgsHash: [32]byte{0xab, 1},
		EndedAt:     time.Date(2026, 1, 4, 12, 34, 56, 789_000_000, time.UTC),
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Attempts:    1, ToolUS: 245_000, TotalUS: 246_007, OutputSize: 1234, CostUSD: 0.001}
	if change != nil {
		change(v)
	}
	return v
}

func tool() *toolkeep.Tool {
	return &toolkeep.Tool{ID: "clock.now", Version: "1.0.0", Manifest: &toolkeep.Manifest{SideEffects: "none",
		Cache: &toolkeep.CacheSpec{Policy: "ttl"}}}
}

func durations() []time.Duration {
	d := make([]time.Duration, len(StepNames))
	d[stepAuthorise], d[stepValidate] = 8*time.Microsecond, 1500*time.Microsecond
	return d
}

// parse reads a line with the strict parser: no duplicate names, no invalid UTF-8.
func parse(t testing.TB, line []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := jsonv2.Unmarshal(line, &m); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	return m
}

func oneLine(t *testing.T, c LogConfig, v *toolkeep.Invocation, e *toolkeep.Error) map[string]any {
	t.Helper()
	var out bytes.Buffer
	c.Out = &out
	NewLog(c).Called(v, tool(), e, durations())
	if out.Len() == 0 {
		return nil
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 || out.Bytes()[out.Len()-1] != '\n' {
		t.Fatalf("%d lines: %s", n, out.String())
	}
	return parse(t, out.Bytes())
}

func TestCallLine(t *testing.T) {
	got := oneLine(t, LogConfig{}, call(nil), nil)
	want := parse(t, []byte(`{
		"timestamp": "2026-01-04T12:34:56.789Z", "level": "INFO", "component": "tool_executor",
		"event": "ai.agent.tool.succeeded", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
		"request_context": {"request_id": "0199-7", "agent_id": "agent_456", "tenant_id": "t1", "session_id": "s1",
			"plan_id": "p1", "task_id": "k1", "face": "rest"},
		"tool_context": {"tool_id": "clock.now", "tool_version": "1.0.0", "category": "time", "execution_type": "builtin"},
		"execution": {"status": "success", "state": "succeeded", "duration_ms": 246.007, "cache_hit": false,
			"attempt": 1, "retry_count": 0, "call_id": "c1"},
		"inputs": {"inputs_hash": "sha256:ab01000000000000000000000000000000000000000000000000000000000000", "inputs_size_bytes": 156},
		"outputs": {"result_size_bytes": 1234, "output_format": "json", "truncated": false},
		"metrics": {"execution_time_ms": 245.000, "overhead_ms": 1.007, "cost_usd": 0.001, "bytes_sent": 0, "bytes_received": 0},
		"errors": null,
		"security": {"auth_type": "api_key", "key_id": "key1", "permission_check_ms": 0.008, "input_validation_ms": 1.5}}`))
	a, _ := json.MarshalIndent(got, "", " ")
	b, _ := json.MarshalIndent(want, "", " ")
	if !bytes.Equal(a, b) {
		t.Fatalf("got %s\nwant %s", a, b)
	}
}

func TestCallLineByOutcome(t *testing.T) {
	for _, c := range []struct {
		name         string
		state        toolkeep.CallState
		code         toolkeep.Code
		cached       bool
		level, event string
	}{
		{"succeeded", toolkeep.CallSucceeded, "", false, "INFO", "ai.agent.tool.succeeded"},
		{"from the cache", toolkeep.CallSucceeded, "", true, "INFO", "ai.agent.tool.cache_hit"},
		{"queued", toolkeep.CallQueued, "", false, "INFO", "ai.agent.tool.invoked"},
		{"parked", toolkeep.CallPendingApproval, "", false, "INFO", "ai.agent.tool.approval.requested"},
		{"cancelled", toolkeep.CallCancelled, toolkeep.Cancelled, false, "INFO", "ai.agent.tool.cancelled"},
		{"timeout", toolkeep.CallFailed, toolkeep.Timeout, false, "ERROR", "ai.agent.tool.timeout"},
		{"failed", toolkeep.CallFailed, "E3520", false, "ERROR", "ai.agent.tool.failed"},
		{"unknown", toolkeep.CallUnknown, toolkeep.OutcomeUnknown, false, "ERROR", "ai.agent.tool.failed"},
		{"expired", toolkeep.CallExpired, "E3704", false, "WARN", "ai.agent.tool.failed"},
		{"not permitted", toolkeep.CallRefused, toolkeep.PermissionDenied, false, "ERROR", "ai.agent.tool.authorization_denied"},
		{"context service away", toolkeep.CallRefused, toolkeep.PolicyEngineUnavailable, false, "ERROR", "ai.agent.tool.failed"},
		{"secret store away", toolkeep.CallRefused, toolkeep.SecretRetrievalFailed, false, "ERROR", "ai.agent.tool.failed"},
		{"limited", toolkeep.CallRefused, toolkeep.RateLimitExceeded, false, "WARN", "ai.agent.tool.rate_limit_exceeded"},
		{"bad arguments", toolkeep.CallRefused, "E3310", false, "WARN", "ai.agent.tool.failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := oneLine(t, LogConfig{}, call(func(v *toolkeep.Invocation) { v.State, v.Code, v.Cached = c.state, c.code, c.cached }), nil)
			if m["level"] != c.level || m["event"] != c.event {
				t.Fatalf("%v %v, want %s %s", m["level"], m["event"], c.level, c.event)
			}
			if errs, _ := m["errors"].(map[string]any); c.code != "" && errs["code"] != string(c.code) {
				t.Fatalf("errors %v", m["errors"])
			}
		})
	}
}

type replacing struct{ old string }

func (r replacing) Clean(s string) string { return strings.ReplaceAll(s, r.old, "[redacted]") }

func TestCallLineOfAnError(t *testing.T) {
	e := toolkeep.NewError("E3520", "the upstream failed").Because(errors.New("dial with hunter2 failed\nsecond line"))
	m := oneLine(t, LogConfig{Clean: replacing{"hunter2"}}, call(func(v *toolkeep.Invocation) {
		v.State, v.Code, v.Message, v.Retryable, v.RetryS, v.Attempts = toolkeep.CallFailed, "E3520", "the upstream failed", true, 7, 3
	}), e)
	errs := m["errors"].(map[string]any)
	if errs["cause"] != "dial with [redacted] failed\nsecond line" || errs["message"] != "the upstream failed" ||
		errs["name"] != "upstream_server_error" || errs["retryable"] != true || errs["retry_after_s"] != 7.0 {
		t.Fatalf("errors %v", errs)
	}
	if x := m["execution"].(map[string]any); x["retry_count"] != 2.0 || x["status"] != "error" {
		t.Fatalf("execution %v", x)
	}
	if m["outputs"] != nil {
		t.Fatalf("outputs %v", m["outputs"])
	}
}

func TestLevels(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(LogConfig{Out: &out, Level: slog.LevelWarn, Components: map[string]slog.Level{"store": slog.LevelDebug}})
	store, rest := l.Logger("store"), l.Logger("rest")
	lines := func() int { n := bytes.Count(out.Bytes(), []byte("\n")); out.Reset(); return n }

	store.Debug("seen")
	rest.Info("not seen")
	l.Called(call(nil), nil, nil, nil)
	if n := lines(); n != 1 {
		t.Fatalf("%d lines, want 1", n)
	}
	l.Levels().SetCommon(slog.LevelInfo)
	l.Levels().Set("store", slog.LevelError)
	rest.Info("seen")
	store.Warn("not seen")
	l.Called(call(nil), nil, nil, nil)
	if n := lines(); n != 2 {
		t.Fatalf("%d lines, want 2", n)
	}
	l.Levels().Unset("store")
	l.Levels().Set(CallComponent, slog.LevelError)
	store.Info("seen")
	l.Called(call(nil), nil, nil, nil)
	if n := lines(); n != 1 {
		t.Fatalf("%d lines, want 1", n)
	}
	if got := strings.Join(l.Levels().Known(), " "); got != "rest store tool_executor" {
		t.Fatalf("known %q", got)
	}
	if l.Levels().Common() != slog.LevelInfo {
		t.Fatal("the common level was not kept")
	}
}

func TestLoggerLine(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(LogConfig{Out: &out, Clean: replacing{"hunter2"}})
	l.Logger("store").Error("broke on hunter2", "error", errors.New("hunter2 is wrong"), "n", 3, slog.Group("g", "s", "hunter2"))
	m := parse(t, out.Bytes())
	if m["message"] != "broke on [redacted]" || m["error"] != "[redacted] is wrong" || m["level"] != "ERROR" ||
		m["component"] != "store" || m["n"] != 3.0 || m["g"].(map[string]any)["s"] != "[redacted]" {
		t.Fatalf("%v", m)
	}
	if _, err := time.Parse(time.RFC3339Nano, m["timestamp"].(string)); err != nil {
		t.Fatal(err)
	}
}

func TestTextForm(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(LogConfig{Out: &out, Text: true})
	l.Called(call(func(v *toolkeep.Invocation) {
		v.State, v.Code, v.Message = toolkeep.CallRefused, toolkeep.PermissionDenied, "no role allows\nit"
	}), nil, nil, nil)
	l.Logger("store").Info("fine")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} ERROR tool_executor: \S+@\S+ \S+ [0-9.]+ms agent=\S+ tenant=\S+ id=\S+ code=E3201 message="no role allows\\u000ait"$`); len(lines) != 2 || !want.MatchString(lines[0]) {
		t.Errorf("%q", lines)
	}
	if want := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} INFO  store: fine$`); !want.MatchString(lines[1]) {
		t.Errorf("%q", lines)
	}
}

// TestTextLine: a line of text stays one line of plain characters whatever it holds, and has no secret.
func TestTextLine(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(LogConfig{Out: &out, Text: true, Level: slog.LevelInfo, Clean: replacing{"hunter2"}})
	log := l.Logger("store").With("a", 1).WithGroup("g").With("b", "two words")
	log.Debug("not at this level")
	log.Warn("broke on hunter2\n\x1b[2J", "error", errors.New("hunter2 is wrong"), slog.Group("h", "c", "", "d", time.Second, "e", []string{"hunter2"}),
		"f", "grün", "bad", "a\xffb", "at", "x=y", slog.Attr{})
	_, line, _ := strings.Cut(out.String(), " ")
	want := `WARN  store: "broke on [redacted]\u000a\u001b[2J" a=1 g.b="two words" g.error="[redacted] is wrong" g.h.c="" g.h.d=1s g.h.e=[[redacted]] g.f=grün g.bad="a\ufffdb" g.at="x=y"` + "\n"
	if line != want {
		t.Errorf("the line is\n%swant\n%s", line, want)
	}
	for message, want := range map[string]string{
		"fine tenant=other":             `"fine tenant=other"`,               // no pair of the line
		"a\u202eb \ufeff\U000e0041 é 😀": `"a\u202eb \ufeff\udb40\udc41 é 😀"`, // turns the direction, hides
	} {
		out.Reset()
		l.Logger("store").Warn(message)
		if _, line, _ := strings.Cut(out.String(), " "); line != "WARN  store: "+want+"\n" {
			t.Errorf("the line is %q, want %s", line, want)
		}
	}
}

func TestLinesComeOutInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		l := NewLog(LogConfig{Out: w})
		l.Start()
		l.Start()
		began := time.Now()
		l.Called(call(nil), tool(), nil, durations())
		line, err := bufio.NewReader(r).ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		parse(t, line)
		if d := time.Since(began); d > 200*time.Millisecond {
			t.Fatalf("the line took %s", d)
		}
		l.Stop()
	})
}

// stuck is an output that blocks until it is released.
type stuck struct {
	goOn chan struct{}
	mu   sync.Mutex
	bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.goOn
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Buffer.Write(p)
}

func TestFullBufferDropsAndCounts(t *testing.T) {
	out := &stuck{goOn: make(chan struct{})}
	l := NewLog(LogConfig{Out: out, BufferBytes: 16 << 10})
	l.Start()
	const all = 200
	for range all { // never blocks
		l.Called(call(nil), tool(), nil, durations())
	}
	dropped := l.Dropped()
	if dropped == 0 || dropped >= all {
		t.Fatalf("%d dropped", dropped)
	}
	if s := l.Samples(); len(s) != 1 || s[0].Value != float64(dropped) {
		t.Fatalf("samples %v", s)
	}
	close(out.goOn)
	l.Stop()
	l.Stop()
	if n := bytes.Count(out.Bytes(), []byte("\n")); uint64(n)+dropped != all {
		t.Fatalf("%d written and %d dropped of %d", n, dropped, all)
	}
	l.Called(call(nil), tool(), nil, durations()) // written through
	if n := bytes.Count(out.Bytes(), []byte("\n")); uint64(n)+dropped != all+1 {
		t.Fatal("a line after Stop was lost")
	}
}

// TestStopBeforeStart: a stopped log does not start again, so lines are written
// immediately and not buffered for a goroutine that never ends.
func TestStopBeforeStart(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(LogConfig{Out: &out, flushEvery: time.Hour})
	l.Stop()
	l.Start()
	l.Logger("store").Info("written through")
	if !strings.Contains(out.String(), "written through") {
		t.Errorf("the log has %q", out.String())
	}
	l.Stop()
}

func TestLogHammer(t *testing.T) {
	var out bytes.Buffer // guarded by the writer
	l := NewLog(LogConfig{Out: &out, flushEvery: time.Millisecond})
	const workers, each = 8, 200
	var wg sync.WaitGroup
	wg.Go(func() { l.Start() })
	for w := range workers {
		log := l.Logger("store")
		wg.Go(func() {
			for i := range each {
				l.Called(call(nil), tool(), nil, durations())
				log.Info("x", "worker", w, "i", i)
				l.Levels().Set("store", slog.LevelInfo)
			}
		})
	}
	wg.Wait()
	l.Stop()
	n := 0
	for line := range bytes.Lines(out.Bytes()) {
		parse(t, line)
		n++
	}
	if uint64(n)+l.Dropped() != 2*workers*each {
		t.Fatalf("%d lines and %d dropped of %d", n, l.Dropped(), 2*workers*each)
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "q\"b\\", "\x00\x1f\x7f\u0085\u2028\u2029", "\xff\xfe", "héé…", "\U0001f600", strings.Repeat("é", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := appendString(nil, s, 256)
		if !utf8.Valid(b) || bytes.ContainsAny(b, "\n\r\x00\x7f") || bytes.Contains(b, []byte("\u2028")) {
			t.Fatalf("%q", b)
		}
		var got string
		if err := jsonv2.Unmarshal(b, &got); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		if len(s) <= 256 && got != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

func BenchmarkCallLine(b *testing.B) {
	l := NewLog(LogConfig{Out: io.Discard})
	l.Start()
	defer l.Stop()
	v, tl, d := call(nil), tool(), durations()
	b.ReportAllocs()
	for b.Loop() {
		l.Called(v, tl, nil, d)
	}
}
