package overlay

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func parse(t testing.TB, s string) *Context {
	t.Helper()
	c, err := Parse([]byte(s), true)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return c
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code toolkeep.Code) *toolkeep.Error {
	t.Helper()
	e := toolkeep.AsError(err)
	if e == nil || e.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	return e
}

// TestSeed reads the seed document's example.
func TestSeed(t *testing.T) {
	c := parse(t, `{"credentials": {"aws_access_key_id_ref": "vault://secrets/aws/access_key", "api_token_ref": "vault://secrets/external_api/token"},
		"config": {"timeout": 30000, "retry_max_attempts": 3, "rate_limit_per_minute": 60},
		"session_context": {"user_id": "user_123", "project_id": "project_456"}}`)
	want := &Context{
		Credentials: map[string]string{"aws_access_key_id_ref": "vault://secrets/aws/access_key", "api_token_ref": "vault://secrets/external_api/token"},
		Timeout:     30 * time.Second, Attempts: 3, PerMinute: 60,
		Facts: map[string]string{"user_id": "user_123", "project_id": "project_456"},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v", c)
	}
	if again := parse(t, string(c.JSON())); !reflect.DeepEqual(again, want) {
		t.Errorf("written and read again: %+v", again)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ give, pointer string }{
		{`{"x":1}`, "/x"},
		{`{"credentials":[]}`, "/credentials"},
		{`{"credentials":{"a":"hunter2 hunter2"}}`, "/credentials/a"},
		{`{"credentials":{"a":"context://b"}}`, "/credentials/a"},
		{`{"credentials":{"a":"env://A\nB"}}`, "/credentials/a"},
		{`{"credentials":{"a b":"env://A"}}`, "/credentials/a b"},
		{`{"credentials":{"a":7}}`, "/credentials/a"},
		{`{"config":{"timeout":0}}`, "/config/timeout"},
		{`{"config":{"timeout":-5}}`, "/config/timeout"},
		{`{"config":{"timeout":1.5}}`, "/config/timeout"},
		{`{"config":{"timeout":"30"}}`, "/config/timeout"},
		{`{"config":{"timeout":86400001}}`, "/config/timeout"},
		{`{"config":{"retry_max_attempts":0}}`, "/config/retry_max_attempts"},
		{`{"config":{"rate_limit_per_minute":1000001}}`, "/config/rate_limit_per_minute"},
		{`{"config":{"sandbox":"none"}}`, "/config/sandbox"},
		{`{"session_context":{"a":{"b":1}}}`, "/session_context/a"},
		{`{"session_context":{"a":"` + strings.Repeat("x", 4097) + `"}}`, "/session_context/a"},
		{`{"session_context":{"` + strings.Repeat("x", 129) + `":1}}`, "/session_context"},
	} {
		_, err := Parse([]byte(c.give), true)
		e := wantCode(t, err, toolkeep.InputValidationFailed)
		faults := e.Details["errors"].([]toolkeep.Fault)
		if faults[0].Pointer != c.pointer {
			t.Errorf("%s: fault at %q, want %q", c.give, faults[0].Pointer, c.pointer)
		}
		if strings.Contains(e.Message, "hunter2 hunter2") || strings.Contains(fmt.Sprint(faults), "hunter2 hunter2") {
			t.Error("what stands in the place of a reference is shown")
		}
	}
	for _, s := range []string{`nope`, `[]`, `{"credentials":{"a":"env://A","a":"env://B"}}`, `{"config":` + strings.Repeat(`{"a":`, 10) + `1` + strings.Repeat("}", 11),
		`{"session_context":{"a":"` + strings.Repeat("x", MaxBytes) + `"}}`} {
		if _, err := Parse([]byte(s), false); err == nil {
			t.Errorf("%.60s is taken", s)
		}
	}
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf(`"f%d":1`, i))
	}
	if _, err := Parse([]byte(`{"session_context":{`+strings.Join(many, ",")+`}}`), false); err == nil {
		t.Error("65 facts are taken")
	}
	if c, err := Parse([]byte(`{"x":1,"config":{"y":2,"timeout":5},"credentials":null,"session_context":{"n":1.50,"b":true,"z":null}}`), false); err != nil ||
		c.Timeout != 5*time.Millisecond || c.Facts["n"] != "1.50" || c.Facts["b"] != "true" || len(c.Facts) != 2 {
		t.Errorf("%+v %v", c, err)
	}
}

func manifest(listed ...string) *toolkeep.Manifest {
	return &toolkeep.Manifest{ToolID: "t.x", Permissions: &toolkeep.Permissions{Credentials: listed}}
}

func TestFill(t *testing.T) {
	c := parse(t, `{"credentials":{"token":"env://AGENT"}}`)
	if ref, err := c.Fill(manifest(), "env://OWN"); err != nil || ref != "env://OWN" {
		t.Errorf("a reference of the manifest's own: %q %v", ref, err)
	}
	if ref, err := c.Fill(manifest("env://AGENT"), "context://token"); err != nil || ref != "env://AGENT" {
		t.Errorf("%q %v", ref, err)
	}
	wantCode(t, second(c.Fill(manifest("env://AGENT"), "context://other")), toolkeep.SecretNotFound)
	// A manifest without a list gives a context no credential, whatever secrets the manifest has.
	for _, m := range []*toolkeep.Manifest{manifest(), manifest("env://OTHER"), {}, manifest("context://token")} {
		e := wantCode(t, second(c.Fill(m, "context://token")), toolkeep.CredentialDenied)
		if strings.Contains(e.Message, "AGENT") || !e.NothingSent {
			t.Errorf("%+v", e)
		}
	}
	var none *Context
	wantCode(t, second(none.Fill(manifest("env://AGENT"), "context://token")), toolkeep.SecretNotFound)
	if ref, err := none.Fill(manifest(), "env://OWN"); err != nil || ref != "env://OWN" {
		t.Errorf("%q %v", ref, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestNarrows(t *testing.T) {
	var none *Context
	if none.Within(time.Second) != time.Second || none.AttemptsWithin(3) != 3 || none.FactsCopy() != nil || none.Changes() {
		t.Error("no context changes something")
	}
	wide := parse(t, `{"config":{"timeout":86400000,"retry_max_attempts":100}}`)
	if wide.Within(time.Second) != time.Second || wide.AttemptsWithin(3) != 3 || wide.Changes() {
		t.Error("a context widens")
	}
	narrow := parse(t, `{"config":{"timeout":10,"retry_max_attempts":1}}`)
	if narrow.Within(time.Second) != 10*time.Millisecond || narrow.AttemptsWithin(3) != 1 {
		t.Error("a context does not narrow")
	}
	a := parse(t, `{"credentials":{"x":"env://A"},"config":{"timeout":50,"rate_limit_per_minute":5},"session_context":{"f":"a"}}`)
	b := parse(t, `{"credentials":{"x":"env://B","y":"env://C"},"config":{"timeout":20,"retry_max_attempts":2},"session_context":{"f":"b","g":"c"}}`)
	got := join(nil, a, nil, b)
	want := parse(t, `{"credentials":{"x":"env://A","y":"env://C"},"config":{"timeout":20,"retry_max_attempts":2,"rate_limit_per_minute":5},"session_context":{"f":"a","g":"c"}}`)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s", got.JSON())
	}
	if a.Facts["g"] != "" || a.Timeout != 50*time.Millisecond {
		t.Error("joining changed a part")
	}
	if join() != nil || join(nil, nil) != nil || a.Digest() == b.Digest() || a.Digest() != parse(t, string(a.JSON())).Digest() {
		t.Error("join or Digest")
	}
	notes := strings.Join(parse(t, `{"credentials":{"token":"env://AGENT"},"config":{"timeout":86400000,"retry_max_attempts":1,"rate_limit_per_minute":7},"session_context":{"user":"ada"}}`).
		Notes(&toolkeep.Manifest{}, 3), "; ")
	if notes != "timeout of 86400000 ms has no effect, the tool's own is 30000 ms; retry_max_attempts lowered to 1; rate_limit_per_minute is 7; credentials token; facts user" {
		t.Error(notes)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, `{"credentials":{"a":"env://A"},"config":{"timeout":1},"session_context":{"a":1e3}}`, `{"config":{"timeout":1e1}}`} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, strict bool) {
		c, err := Parse(raw, strict)
		if err != nil {
			return
		}
		again, err := Parse(c.JSON(), true)
		if err != nil {
			t.Fatalf("%s becomes %s, which is refused: %v", raw, c.JSON(), err)
		}
		if string(again.JSON()) != string(c.JSON()) {
			t.Fatalf("%s and %s", c.JSON(), again.JSON())
		}
	})
}
