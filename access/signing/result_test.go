package signing

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

type vectors struct {
	Key   string
	KeyID string `json:"key_id"`
	Cases []struct {
		Name, Content, Text, Signature string
		Answer                         json.RawMessage
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	raw, err := os.ReadFile("../../contracts/result-signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &v); err != nil || len(v.Cases) < 6 {
		t.Fatal(err, len(v.Cases))
	}
	return v
}

// TestResultVectors tests what other programs test themselves with.
func TestResultVectors(t *testing.T) {
	v := readVectors(t)
	if got := KeyID([]byte(v.Key)); got != v.KeyID {
		t.Errorf("key id %s, want %s", got, v.KeyID)
	}
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			s, err := ReadResult(c.Answer)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(s.Result.Content); got != c.Content {
				t.Errorf("content\n%s, want\n%s", got, c.Content)
			}
			if text, err := s.Result.Text(s.KeyID); err != nil || string(text) != c.Text {
				t.Errorf("%v, text\n%s, want\n%s", err, text, c.Text)
			}
			if made, err := s.Result.Sign([]byte(v.Key)); err != nil || made.Value != c.Signature || made.KeyID != v.KeyID {
				t.Errorf("%v %v, want %s", err, made, c.Signature)
			}
			if err := s.Verify(other, []byte(v.Key)); err != nil {
				t.Error(err)
			}
			if err := s.Verify(other); err == nil || !strings.Contains(err.Error(), "was signed with the key") {
				t.Errorf("another key: %v", err)
			}
		})
	}
}

// uncovered are the members that a signature does not cover.
var uncovered = []string{"/id", "/jsonrpc", "/execution_metadata/duration_ms", "/execution_metadata/started_at", "/execution_metadata/source", "/execution_metadata/cache_hit",
	"/execution_metadata/warnings/0/code", "/execution_metadata/warnings/0/message", "/error/code", "/error/name", "/error/class", "/error/retry_after_s",
	"/agent_id", "/user_id", "/actor_id", "/session_id", "/parent_invocation_id", "/created_at", "/call_id"}

// TestAlteredResults changes each value of each answer in turn.
func TestAlteredResults(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Cases {
		answer, err := tree(c.Answer)
		if err != nil {
			t.Fatal(err)
		}
		free, found := map[string]bool{}, 0
		for _, at := range uncovered {
			free[at] = true
		}
		alter(answer, "", func(at string) {
			s, err := ReadResult(canon.Append(nil, answer))
			if err == nil {
				err = s.Verify([]byte(v.Key))
			}
			if (err == nil) != free[at] {
				t.Errorf("%s: with another %s: %v", c.Name, at, err)
			}
			found++
		})
		if found < 10 {
			t.Errorf("%s: %d values", c.Name, found)
		}
	}
}

// TestAddedMembers adds members to each answer that say other than what is signed.
func TestAddedMembers(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Cases {
		for _, add := range []struct{ at, member, value string }{
			{"", "error", `"denied"`}, {"", "error", `null`}, {"", "error", `{}`}, {"", "error", `[]`}, {"", "result", `"x"`}, {"", "result", `null`},
			{"", "tool_id", `"files.delete"`}, {"", "tool_id", `null`}, {"", "tool_id", `{}`}, {"", "tool_version", `"9.9.9"`}, {"", "tool_version", `["1.2.0"]`},
			{"", "state", `"running"`}, {"", "state", `"refused"`}, {"", "state", `"cancelled"`}, {"", "state", `{}`}, {"", "status", `"cancelled"`},
			{"", "jsonrpc", `"2.0"`}, {"", "method", `"x"`}, {"", "_meta", `{}`}, {"", "isError", `17`}, {"", "resultType", `"input_required"`},
			{"_meta", "toolkeep/status", `"cancelled"`}, {"error", "details", `{"a":1}`},
			{"execution_metadata", "truncated", `"x"`}, {"execution_metadata", "attachments", `[{}]`}, {"execution_metadata", "signature", `{}`},
		} {
			answer, err := tree(c.Answer)
			if err != nil {
				t.Fatal(err)
			}
			outer := answer.(map[string]any)
			to, wrapped := outer, outer["jsonrpc"] != nil
			if wrapped && add.member != "error" && add.member != "method" {
				to = outer["result"].(map[string]any)
			}
			overMCP := wrapped || to["_meta"] != nil
			if add.at != "" {
				to, _ = to[add.at].(map[string]any)
			}
			// Over MCP a member beside the content is content; over REST these are none of the answer.
			if to == nil || !overMCP && (add.member == "isError" || add.member == "method" || add.member == "resultType") {
				continue
			}
			if to[add.member], err = tree([]byte(add.value)); err != nil {
				t.Fatal(err)
			}
			s, err := ReadResult(canon.Append(nil, answer))
			if err == nil {
				err = s.Verify([]byte(v.Key))
			}
			if err == nil {
				t.Errorf("%s: verifies with %s/%s %s", c.Name, add.at, add.member, add.value)
			}
		}
	}
}

// alter changes one scalar after the other, calls try, and takes the change back.
func alter(v any, at string, try func(at string)) {
	change := func(name string, old any, set func(any)) {
		switch x := old.(type) {
		case string:
			if rest, ok := strings.CutPrefix(x, "2026-"); ok { // a time
				set("2027-" + rest)
			} else {
				set(x + "0")
			}
		case bool:
			set(!x)
		case json.Number:
			set(json.Number("17"))
		default:
			alter(old, at+"/"+name, try)
			return
		}
		try(at + "/" + name)
		set(old)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, old := range v {
			change(name, old, func(n any) { v[name] = n })
		}
	case []any:
		for i, old := range v {
			change("0", old, func(n any) { v[i] = n })
		}
	}
}

// TestOutcomeIsJCS compares what is taken over as it is with what JCS writes.
func TestOutcomeIsJCS(t *testing.T) {
	same := 0
	for _, text := range []string{`null`, `"a"`, `-1`, `0`, `-0`, `1.5`, `1.50`, `0.000001`, `0.0000001`, `-0.0`, `100`, `1e2`, `12E3`, `123456789012345`, `1234567890123456`, `9007199254740993`,
		`0.1000000000000000055511`, `1.23456789012345`, `{"a":"1.0e5\\\"2.0","b":[1,2.25]}`, "{\"\ue000\":1,\"\U0001f600\":2}", "[\"\u20ac\"]", `[]`, `{}`} {
		v, err := tree([]byte(text))
		if err != nil {
			t.Fatal(text, err)
		}
		out := canon.Append(nil, v)
		content, err := Outcome(&toolkeep.Result{Output: out, Truncated: true}, nil)
		if want := `{"result":` + string(canon.JCSExact(v, 0)) + `,"truncated":true}`; err != nil || string(content) != want {
			t.Errorf("%s: %v, %s, want %s", text, err, content, want)
		}
		if sameInJCS(out) {
			same++
			if jcs := string(canon.JCSExact(v, 0)); jcs != string(out) {
				t.Errorf("%s is taken for %s", out, jcs)
			}
		}
	}
	if same < 10 {
		t.Errorf("%d are taken as they are", same)
	}
	if content, err := Outcome(&toolkeep.Result{}, nil); err != nil || string(content) != "{}" {
		t.Errorf("%s %v", content, err)
	}
}

// FuzzOutcome looks for texts that are taken over as they are and are not what JCS writes.
func FuzzOutcome(f *testing.F) {
	f.Add([]byte(`{"a":[1.5,-20,"\u00e4"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := tree(raw)
		if err != nil {
			return
		}
		if out := canon.Append(nil, v); sameInJCS(out) && string(out) != string(canon.JCSExact(v, 0)) {
			t.Errorf("%s", out)
		}
	})
}

func TestUnsignedAnswers(t *testing.T) {
	for _, raw := range []string{`{}`, `{"execution_metadata":{}}`, `{"_meta":{}}`, `{"result":{"_meta":{"toolkeep/invocation_id":"x"}},"jsonrpc":"2.0"}`} {
		if _, err := ReadResult([]byte(raw)); !errors.Is(err, ErrUnsigned) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for raw, want := range map[string]string{
		`[]`:  "not one JSON object",
		`{}x`: "not one JSON object",
		`{"execution_metadata":{"signature":{"algorithm":"none"}}}`:        `algorithm "none"`,
		`{"execution_metadata":{"signature":{"algorithm":"HMAC-SHA256"}}}`: "completed_at",
	} {
		if _, err := ReadResult([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
	r := Result{Tenant: "a\nb"}
	if _, err := r.Sign(key); err == nil {
		t.Error("a name with a line break was signed")
	}
}

func BenchmarkSignResult(b *testing.B) {
	for name, n := range map[string]int{"1K": 10, "60K": 600} {
		out := []byte(`{"rows":[` + strings.TrimSuffix(strings.Repeat(`{"active":true,"city":"Rotterdam","id":12345,"name":"Ann Miller","tags":["a","b"],"total":12.5},`, n), ",") + `]}`)
		r := toolkeep.Result{Output: out, EndedAt: time.Unix(1_800_000_000, 0)}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(out)))
			for b.Loop() {
				content, err := Outcome(&r, nil)
				if err != nil {
					b.Fatal(err)
				}
				s := Result{Tenant: "default", Tool: "a.b", Completed: r.EndedAt, Content: content}
				if _, err := s.Sign(key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzReadResult(f *testing.F) {
	f.Add([]byte(`{"execution_metadata":{"signature":{"algorithm":"HMAC-SHA256"},"completed_at":"2026-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := ReadResult(raw); err == nil && s.Verify(key) == nil {
			t.Error("verified")
		}
	})
}
