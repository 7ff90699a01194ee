package invoke_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// password must not appear in any record, in any form.
const password = `correct "horse" battery`

// wantNoPassword searches a text for the password, plain, as JSON and in base64.
func wantNoPassword(t *testing.T, where, text string) {
	t.Helper()
	quoted, _ := json.Marshal(password)
	for _, form := range []string{password, strings.Trim(string(quoted), `"`), base64.StdEncoding.EncodeToString([]byte(password))} {
		if strings.Contains(text, form) {
			t.Errorf("the password is in %s: %s", where, text)
		}
	}
}

func login(m *toolkeep.Manifest) {
	m.ParametersSchema = json.RawMessage(`{"type":"object","properties":{"user":{"type":"string"},"login":{"$ref":"#/$defs/login"},
		"pins":{"type":"array","items":{"anyOf":[{"type":"integer"},{"type":"string","format":"password"}]}},"card":{"type":"object"}},
		"$defs":{"login":{"type":"object","properties":{"password":{"type":"string","format":"password"},"again":{"$ref":"#/$defs/login"}}}}}`)
	m.Redact = []string{"/card/number", "/card/codes/*"}
}

// TestArgumentsThatAreSecret: a tool that repeats them exposes them nowhere, in
// answers, records, cached results, progress, causes and child tools.
func TestArgumentsThatAreSecret(t *testing.T) {
	h := newHarness(t)
	h.tool("login", login)
	h.tool("leaf", func(m *toolkeep.Manifest) { m.Result = &toolkeep.ResultSpec{SensitiveFields: []string{"/other"}} }) // so that records quote nothing of it
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.leaf" {
			return &toolkeep.Output{Value: "leaf: " + password, HasValue: true}, nil
		}
		if x.Caller != nil {
			x.Caller.Progress(toolkeep.Progress{Message: "signing in with " + password, Percent: 10})
		}
		if x.Args["user"] == "refused" {
			return nil, toolkeep.NewError(toolkeep.UpstreamClientError, "the upstream says: %s is wrong", password).
				With("body", map[string]any{"sent": password, "base64": base64.StdEncoding.EncodeToString([]byte(password))}).
				Because(errors.New("it said " + password))
		}
		below, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.leaf"})
		if err != nil {
			return nil, err
		}
		return &toolkeep.Output{Value: map[string]any{"echo": x.Args, "words": "you said " + password, "user": x.Args["user"], "below": string(below.Output)}, HasValue: true}, nil
	}
	arguments, _ := json.Marshal(map[string]any{"user": "ann", "login": map[string]any{"again": map[string]any{"password": password}},
		"pins": []any{7, "pin-8642"}, "card": map[string]any{"number": 4012888888881881, "codes": []any{"code-1", "code-2"}, "name": "ann"}})
	for _, call := range []*toolkeep.Call{
		{Tool: "std.login", Arguments: arguments},
		{Tool: "std.login", Arguments: arguments, Key: "k"},
		{Tool: "std.login", Arguments: arguments, Async: true},
		{Tool: "std.login", Arguments: []byte(strings.Replace(string(arguments), `"user":"ann"`, `"user":"refused"`, 1)), Key: "r"},
		{Tool: "std.login", Arguments: []byte(strings.Replace(string(arguments), `"user":"ann"`, `"user":"refused"`, 1)), Async: true},
	} {
		res, err := h.call(call)
		if err != nil {
			t.Fatal(err)
		}
		h.work()
		if !call.Async {
			wantNoPassword(t, "the answer", string(res.Output)+fmt.Sprint(res.Error))
		}
		row := h.row(res.InvocationID)
		text := string(row.Output) + row.Message + string(row.Details) + row.Progress.Message
		wantNoPassword(t, "the record", text)
		for _, part := range []string{"pin-8642", "4012888888881881", "code-1", "code-2"} {
			if strings.Contains(text, part) {
				t.Errorf("%s is in %s", part, text)
			}
		}
		if len(row.Output) > 0 && (!strings.Contains(text, `"user":"ann"`) || !strings.Contains(text, `"name":"ann"`) || !strings.Contains(text, "you said [REDACTED]")) {
			t.Errorf("more than the secrets was taken out: %s", text)
		}
		if row.Code != "" && !strings.Contains(row.Message, "the upstream says: [REDACTED] is wrong") {
			t.Errorf("the message is %q", row.Message)
		}
	}
	// Another call may use the same words, and so may another parent's child tools.
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		return &toolkeep.Output{Value: password + " " + x.Clean.Clean(password), HasValue: true}, nil
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.leaf"})
	if err != nil || !strings.Contains(string(res.Output), "horse") {
		t.Errorf("another call answers %s, %v", res.Output, err)
	}
	// The whole database on disk.
	h.pipeline.Stop()
	h.everyFile(func(name, text string) { wantNoPassword(t, name, text) })
}

// everyFile calls look for every file of the harness.
func (h *harness) everyFile(look func(name, text string)) {
	h.t.Helper()
	err := filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		look(filepath.Base(path), string(b))
		return err
	})
	if err != nil {
		h.t.Error(err)
	}
}

// TestSecretArgumentsCannotProbe: a caller who passes the middle of a secret must not
// see its ends, and a recursive schema redacts everything.
func TestSecretArgumentsCannotProbe(t *testing.T) {
	h := newHarness(t)
	defer h.redact.Hold(redact.AllTenants, "abcd-efgh-ijkl")()
	h.tool("login", login)
	h.tool("round", func(m *toolkeep.Manifest) {
		m.ParametersSchema = json.RawMessage(`{"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]},"b":{"format":"password"}},
			"properties":{"x":{"if":{"$ref":"#/$defs/a"}},"y":{"type":"string"}}}`)
	})
	h.executor.do = func(_ context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		return &toolkeep.Output{Value: "abcd-efgh-ijkl and " + fmt.Sprint(x.Args["y"]), HasValue: true}, nil
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.login", Arguments: []byte(`{"login":{"password":"efgh"}}`)})
	if err != nil || strings.Contains(string(res.Output), "abcd") || strings.Contains(string(res.Output), "ijkl") {
		t.Errorf("%s %v", res.Output, err)
	}
	res, err = h.call(&toolkeep.Call{Tool: "std.round", Arguments: []byte(`{"x":1,"y":"some words"}`)})
	if err != nil || !strings.Contains(string(res.Output), "and [REDACTED]") {
		t.Errorf("%s %v", res.Output, err)
	}
}

// TestPasswordsThatDoNotFit: a fault quotes invalid values, but not passwords.
func TestPasswordsThatDoNotFit(t *testing.T) {
	h := newHarness(t)
	h.tool("login", login)
	for _, args := range []string{
		`{"login":{"password":["correct \"horse\" battery"]}}`,
		`{"login":{"password":{"x":"correct \"horse\" battery"}},"user":7}`,
		`{"card":"correct \"horse\" battery","login":{"again":{"password":["correct \"horse\" battery"]}}}`,
	} {
		_, err := h.call(&toolkeep.Call{Tool: "std.login", Arguments: []byte(args)})
		if err == nil {
			t.Fatalf("%s is taken", args)
		}
		details, _ := json.Marshal(err.Details)
		wantNoPassword(t, "the answer to "+args, err.Message+string(details))
	}
}
