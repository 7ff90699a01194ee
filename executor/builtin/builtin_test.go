package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	xjson "github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/executortest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newExecutor(t testing.TB) *Executor {
	return New(Config{Clock: func() time.Time { return noon }, Dir: t.TempDir()})
}

// all returns the embedded manifests by tool id.
func all(t testing.TB) map[string]*toolkeep.Manifest {
	t.Helper()
	out := make(map[string]*toolkeep.Manifest)
	for _, raw := range Manifests() {
		m := new(toolkeep.Manifest)
		if err := xjson.Unmarshal(raw, m); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		out[m.ToolID] = m
	}
	return out
}

func tree(t testing.TB, s string) any {
	t.Helper()
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

func call(t testing.TB, e *Executor, id, args string, edit ...func(*toolkeep.Execution)) (string, *toolkeep.Error) {
	t.Helper()
	m := all(t)[id]
	if m == nil {
		t.Fatalf("there is no tool %s", id)
	}
	x := &toolkeep.Execution{Tool: executortest.Tool(m), Args: tree(t, args).(map[string]any), Attempt: 1,
		InvocationID: "inv-1", Principal: &toolkeep.Principal{Tenant: "acme", Subject: "agent"}}
	for _, f := range edit {
		f(x)
	}
	out, err := e.Execute(t.Context(), x)
	if err != nil {
		return "", toolkeep.AsError(err)
	}
	return string(canon.Append(nil, out.Value)), nil
}

func TestConformance(t *testing.T) {
	executortest.Run(t, func(t *testing.T) executortest.Harness {
		ms := all(t)
		tool := func(id, args string) *executortest.Case {
			return &executortest.Case{Name: id, Tool: executortest.Tool(ms[id]), Args: tree(t, args).(map[string]any)}
		}
		with := func(binding string) *toolkeep.Manifest {
			m := *ms["std.echo"]
			m.Execution.Binding = []byte(binding)
			return &m
		}
		unsent := tool("std.clock_now", `{"timezone":"Mars/Base"}`)
		unsent.Code = toolkeep.InputValidationFailed
		failing := func(code toolkeep.Code) *executortest.Case {
			c := tool("std.fail", `{"code":"`+string(code)+`"}`)
			c.Code = code
			return c
		}
		sent := failing(toolkeep.UpstreamServerError)
		return executortest.Harness{
			Executor: newExecutor(t), Kind: "builtin", Good: ms["std.echo"],
			Bad: []executortest.Bad{
				{Name: "unknown function", Manifest: with(`{"name":"nope"}`), Pointer: "/execution/binding/name"},
				{Name: "no name", Manifest: with(`{}`), Pointer: "/execution/binding/name"},
				{Name: "name of another type", Manifest: with(`{"name":1}`), Pointer: "/execution/binding/name"},
				{Name: "unknown field", Manifest: with(`{"name":"echo","x":1}`), Pointer: "/execution/binding/x"},
				{Name: "not JSON", Manifest: with(`nope`), Pointer: "/execution/binding"},
			},
			Works:     tool("std.echo", `{"a":[1.50,{"b":null}]}`),
			Slow:      tool("std.wait", `{"duration_ms":300000}`),
			Large:     tool("std.echo", `{"text":"`+strings.Repeat("x", 2000)+`"}`),
			Unsent:    []*executortest.Case{unsent},
			Sent:      []*executortest.Case{sent},
			Retryable: []*executortest.Case{sent},
			Permanent: []*executortest.Case{unsent, failing("E3510")},
			Lacks: map[string]string{
				"Counted":   "the results are made in the process, as a whole",
				"Leaky":     "functions in the server take no credentials",
				"Told":      "functions in the server take no credentials",
				"Malformed": "what a function in the server gives is a tree",
				"Stopped":   "there is no upstream; the function itself returns",
			},
		}
	})
}

// schemaOf compiles a schema of a manifest.
func schemaOf(t *testing.T, raw []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("urn:test", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestManifests checks every manifest against the contract, its examples against its
// schemas, and the functions' results against both.
func TestManifests(t *testing.T) {
	contract, err := os.ReadFile("../../contracts/manifest.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	shape := schemaOf(t, contract)
	e := newExecutor(t)
	if n := len(all(t)); n != len(e.functions) {
		t.Errorf("%d manifests for %d functions", n, len(e.functions))
	}
	for _, raw := range Manifests() {
		m := new(toolkeep.Manifest)
		if err := xjson.Unmarshal(raw, m); err != nil {
			t.Fatal(err)
		}
		t.Run(m.ToolID, func(t *testing.T) {
			doc, _ := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
			if err := shape.Validate(doc); err != nil {
				t.Fatal(err)
			}
			if faults := e.Check(m); len(faults) > 0 {
				t.Fatal(faults)
			}
			if len(m.Examples) == 0 || m.ShortDescription == "" || m.ToolName == "" {
				t.Error("examples, title or short description are missing")
			}
			params, result := schemaOf(t, m.ParametersSchema), schemaOf(t, m.ResultSchema)
			for _, ex := range m.Examples {
				args := tree(t, string(ex.Input))
				if err := params.Validate(args); err != nil {
					t.Errorf("%s: %v", ex.Scenario, err)
				}
				out, err := e.Execute(t.Context(), &toolkeep.Execution{Tool: executortest.Tool(m), Args: args.(map[string]any), Attempt: 3})
				if err != nil {
					if m.ToolID != "std.fail" {
						t.Errorf("%s: %v", ex.Scenario, err)
					}
					continue
				}
				if err := result.Validate(out.Value); err != nil {
					t.Errorf("%s: %v", ex.Scenario, err)
				}
				if ex.Output == nil {
					continue
				}
				want := canon.Append(nil, tree(t, string(ex.Output)))
				if got := canon.Append(nil, out.Value); !bytes.Equal(got, want) {
					t.Errorf("%s:\ngot  %s\nwant %s", ex.Scenario, got, want)
				}
			}
		})
	}
}

func TestFunctions(t *testing.T) {
	const E = "E3310"
	tests := []struct{ tool, args, want string }{
		{"clock_now", `{}`, `{"offset_seconds":0,"time":"2026-03-01T12:00:00Z","timezone":"UTC","unix_ms":1772366400000,"weekday":"sunday"}`},
		{"clock_now", `{"timezone":"Asia/Tokyo","format":"time"}`, `{"offset_seconds":32400,"time":"21:00:00","timezone":"Asia/Tokyo","unix_ms":1772366400000,"weekday":"sunday"}`},
		{"clock_now", `{"timezone":"Local"}`, E},
		{"clock_now", `{"timezone":"../../etc/passwd"}`, E},
		{"date_diff", `{"from":"2024-01-31","to":"2024-02-29"}`, `{"calendar":{"days":0,"months":1,"years":0},"days":29,"hours":696,"minutes":41760,"seconds":2505600,"weeks":4}`},
		{"date_diff", `{"from":"2020-02-29","to":"2026-03-01"}`, `{"calendar":{"days":1,"months":0,"years":6},"days":2192,"hours":52608,"minutes":3156480,"seconds":189388800,"weeks":313}`},
		{"date_diff", `{"from":"2026-03-01T23:00:00-05:00","to":"2026-03-02T05:30:00+01:00"}`, `{"calendar":{"days":0,"months":0,"years":0},"days":0,"hours":0,"minutes":30,"seconds":1800,"weeks":0}`},
		{"date_diff", `{"from":"yesterday","to":"2026-03-01"}`, E},
		{"hash", `{"text":"","algorithm":"sha1"}`, `{"algorithm":"sha1","bytes":0,"digest":"da39a3ee5e6b4b0d3255bfef95601890afd80709"}`},
		{"hash", `{"text":"aGk=","input_encoding":"base64","algorithm":"md5","output_encoding":"base64"}`, `{"algorithm":"md5","bytes":2,"digest":"SfaKXIST7CwL9ImCHCH8Ow=="}`},
		{"hash", `{"text":"zz","input_encoding":"hex"}`, E},
		{"base64", `{"text":"??>","url_safe":true}`, `{"bytes":3,"text":"Pz8-"}`},
		{"base64", `{"text":"Pz8-","mode":"decode"}`, `{"bytes":3,"text":"??>"}`},
		{"base64", `{"text":"*","mode":"decode"}`, E},
		{"math", `{"operation":"multiply","numbers":[9007199254740993,"1e-400","1e400"]}`, `{"exact":true,"fraction":"9007199254740993","value":9007199254740993}`},
		{"math", `{"operation":"subtract","numbers":[1,0.9,0.1]}`, `{"exact":true,"fraction":"0","value":0}`},
		{"math", `{"operation":"divide","numbers":[-1,8]}`, `{"exact":true,"fraction":"-1/8","value":-0.125}`},
		{"math", `{"operation":"divide","numbers":[-1,3],"decimals":0}`, `{"exact":false,"fraction":"-1/3","value":0}`},
		{"math", `{"operation":"divide","numbers":[200,1],"decimals":0}`, `{"exact":true,"fraction":"200","value":200}`},
		{"math", `{"operation":"divide","numbers":[1,0]}`, E},
		{"math", `{"operation":"add","numbers":["1e401",1]}`, E},
		{"math", `{"operation":"add","numbers":["1/3",1]}`, E},
		{"math", `{"operation":"add","numbers":["0x10",1]}`, E},
		{"math", `{"operation":"multiply","numbers":["1e400","1e400","1e400"]}`, E},
		{"text_stats", `{"text":""}`, `{"bytes":0,"characters":0,"lines":0,"longest_word":0,"sentences":0,"unique_words":0,"words":0}`},
		{"text_stats", `{"text":"Größe zählt.\nJa, größe!\n"}`, `{"bytes":29,"characters":24,"lines":2,"longest_word":5,"sentences":2,"unique_words":3,"words":4}`},
		{"regex_find", `{"pattern":"(é)|(x)","text":"aéx","limit":1}`, `{"count":1,"matches":[{"end":2,"groups":["é",null],"match":"é","named":{},"start":1}],"more":true}`},
		{"regex_find", `{"pattern":"b","text":"aB","ignore_case":true}`, `{"count":1,"matches":[{"end":2,"groups":[],"match":"B","named":{},"start":1}],"more":false}`},
		{"regex_find", `{"pattern":"(?=x)","text":"x"}`, E},
		{"uuid", `{"version":"v5","namespace":"nope","name":"x"}`, E},
		{"wait", `{"duration_ms":300001}`, E},
		{"wait", `{"duration_ms":0.0}`, `{"waited_ms":0}`},
		{"fail", `{"code":"E9999"}`, E},
		{"fail", `{"code":"E3006"}`, E}, // a warning
		{"note_append", `{"text":"x","notebook":"../x"}`, E},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.tool+tt.args, func(t *testing.T) {
			got, err := call(t, e, "std."+tt.tool, tt.args)
			if err != nil {
				got = string(err.Code)
				if !err.NothingSent {
					t.Error("NothingSent is not set")
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s (%v)", got, tt.want, err)
			}
		})
	}
}

func TestFail(t *testing.T) {
	e := newExecutor(t)
	_, err := call(t, e, "std.fail", `{"code":"E3801","message":"slow down","retry_after_s":3,"nothing_sent":true}`)
	if err == nil || err.Code != toolkeep.RateLimitExceeded || err.RetryAfter != 3*time.Second || !err.NothingSent || err.Message != "slow down" || !err.Retryable {
		t.Errorf("error = %+v", err)
	}
	if got, err := call(t, e, "std.fail", `{"succeed_on_attempt":2}`, func(x *toolkeep.Execution) { x.Attempt = 2 }); err != nil || got != `{"attempt":2}` {
		t.Errorf("%s, %v", got, err)
	}
}

// TestUUIDs: UUIDs are unique and of their version.
func TestUUIDs(t *testing.T) {
	for version, digit := range map[string]byte{"v4": '4', "v7": '7'} {
		got, err := call(t, newExecutor(t), "std.uuid", `{"version":"`+version+`","count":100}`)
		if err != nil {
			t.Fatal(err)
		}
		ids := tree(t, got).(map[string]any)["uuids"].([]any)
		seen := make(map[any]bool)
		for _, id := range ids {
			seen[id] = true
			if id.(string)[14] != digit {
				t.Errorf("%s is not %s", id, version)
			}
		}
		if len(seen) != 100 {
			t.Errorf("%d different ids of 100", len(seen))
		}
	}
}

type progress struct{ all []toolkeep.Progress }

func (p *progress) Progress(v toolkeep.Progress) { p.all = append(p.all, v) }

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		p := &progress{}
		start := time.Now()
		got, err := call(t, e, "std.wait", `{"duration_ms":300000,"message":"m"}`, func(x *toolkeep.Execution) { x.Caller = p })
		if err != nil || got != `{"waited_ms":300000}` || time.Since(start) != 5*time.Minute {
			t.Fatalf("%s, %v after %v", got, err, time.Since(start))
		}
		if len(p.all) < 19 || p.all[0] != (toolkeep.Progress{Percent: 5, Phase: "waiting", Message: "m"}) {
			t.Errorf("progress: %+v", p.all)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, xerr := e.Execute(ctx, &toolkeep.Execution{Tool: executortest.Tool(all(t)["std.wait"]), Args: map[string]any{"duration_ms": json.Number("60000")}})
		if e := toolkeep.AsError(xerr); e == nil || e.Code != toolkeep.UpstreamTimeout {
			t.Errorf("error = %v", xerr)
		}
	})
}

func TestNotes(t *testing.T) {
	dir := t.TempDir()
	e := New(Config{Clock: func() time.Time { return noon }, Dir: dir})
	as := func(tenant string) func(*toolkeep.Execution) {
		return func(x *toolkeep.Execution) { x.Principal.Tenant = tenant }
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := call(t, e, "std.note_append", `{"text":"line\nbreak"}`); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	file := filepath.Join(dir, "acme", "default.jsonl")
	raw, err := os.ReadFile(file)
	if err != nil || bytes.Count(raw, []byte("\n")) != 20 {
		t.Fatalf("%d lines for 20 calls, %v", bytes.Count(raw, []byte("\n")), err)
	}
	// A crash truncated the last write: the next note must not be lost with it.
	if err := os.WriteFile(file, append(raw, `{"at":"20`...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, e, "std.note_append", `{"text":"after"}`); err != nil {
		t.Fatal(err)
	}
	got, terr := call(t, e, "std.note_list", `{"offset":20}`)
	if want := `{"notes":[{"at":"2026-03-01T12:00:00Z","by":"agent","invocation_id":"inv-1","text":"after"}],"total":21}`; terr != nil || got != want {
		t.Errorf("got %s, %v\nwant %s", got, terr, want)
	}
	for _, tenant := range []string{"other", "../acme", "", "ACME", "acme/"} {
		if got, err := call(t, e, "std.note_list", `{}`, as(tenant)); err != nil || got != `{"notes":[],"total":0}` {
			t.Errorf("the tenant %q sees %s, %v", tenant, got, err)
		}
	}
	if _, err := call(t, e, "std.note_append", `{"text":"x"}`, as("../../up")); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("the folder has %v", entries)
	}
	if err := os.Truncate(file, maxNotebook); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, e, "std.note_append", `{"text":"x"}`); err == nil || err.Code != toolkeep.ResourceExhausted || !err.NothingSent {
		t.Errorf("a full notebook: %v", err)
	}
	if _, err := call(t, New(Config{}), "std.note_append", `{"text":"x"}`); err == nil || err.Code != toolkeep.FilesystemDenied || !err.NothingSent {
		t.Errorf("without a folder: %v", err)
	}
}

func BenchmarkEcho(b *testing.B) {
	e := New(Config{})
	m := all(b)["std.echo"]
	m.Execution.Binding = []byte(`{"name":"echo"}`)
	x := &toolkeep.Execution{Tool: executortest.Tool(m), Args: tree(b, `{"message":"hello","list":[1,2,3],"nested":{"a":true}}`).(map[string]any)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Execute(b.Context(), x); err != nil {
			b.Fatal(err)
		}
	}
}
