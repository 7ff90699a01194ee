package policy

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// service answers as a test says, and keeps the last request.
type service struct {
	*httptest.Server
	status int
	answer string
	wait   chan struct{} // until it is closed there is no answer; nil: at once
	asked  int
	path   string
	token  string
	body   map[string]any
}

func newService(t *testing.T, answer string) *service {
	s := &service{status: 200, answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked++
		s.path, s.token = r.Method+" "+r.URL.Path, r.Header.Get("Authorization")
		raw, err := io.ReadAll(r.Body)
		s.body = nil
		if err == nil && r.Method == http.MethodPost {
			err = json.Unmarshal(raw, &s.body)
		}
		if err != nil {
			t.Error(err)
		}
		if s.wait != nil {
			select {
			case <-s.wait:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.answer)
	}))
	t.Cleanup(s.Close)
	return s
}

func remote(t *testing.T, r *Remote, change ...func(*Config)) *Engine {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	r.Client = client
	c := Config{Remote: r, Timeout: 20 * time.Second}
	for _, f := range change {
		f(&c)
	}
	e, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestRemoteOPA: what each answer of an OPA server decides. The forms of its answers are those
// that OPA's REST documentation has.
func TestRemoteOPA(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		status       int
		allow        bool
		reason       string
		owes         int
		fails        string
	}{
		{name: "true", answer: `{"result":true}`, allow: true},
		{name: "false", answer: `{"result":false,"decision_id":"x"}`},
		{name: "undefined", answer: `{}`, reason: "does not define"},
		{name: "a package", answer: `{"result":{"allow":true,"deny":[],"helper":1}}`, allow: true},
		{name: "a package that denies", answer: `{"result":{"allow":true,"deny":["no"]}}`, reason: "no"},
		{name: "allow is undefined", answer: `{"result":{"deny":[]}}`, reason: "does not define allow"},
		{name: "allow is undefined and it denies", answer: `{"result":{"deny":["no"]}}`, reason: "no"},
		{name: "allow is undefined and it obliges", answer: `{"result":{"require_approval":["late"]}}`, reason: "does not define allow"},
		{name: "no rule is defined", answer: `{"result":{}}`, reason: "does not define allow"},
		{name: "no rule that is asked", answer: `{"result":{"helper":1}}`, fails: "without allow"},
		{name: "allow is false", answer: `{"result":{"allow":false,"deny":[]}}`, reason: "no rule"},
		{name: "a package that obliges", answer: `{"result":{"allow":true,"require_approval":[{"reason":"late","rule":"night"}]}}`, allow: true, owes: 1},
		{name: "an object that decides nothing", answer: `{"result":{"allowed":true}}`, fails: "without allow, deny and require_approval"},
		{name: "a text", answer: `{"result":"true"}`, fails: "neither true or false"},
		{name: "a number as allow", answer: `{"result":{"allow":1}}`, fails: "true or false"},
		{name: "no JSON", answer: `<html>`, fails: "not a JSON object"},
		{name: "twice", answer: `{"result":false,"result":true}`, fails: "not a JSON object"},
		{name: "too large", answer: `{"result":true,"x":"` + strings.Repeat("x", maxAnswer) + `"}`, fails: "more than 64 KiB"},
		{name: "an error", answer: `{"result":true}`, status: 500, fails: "status 500"},
		{name: "a redirect", answer: `{"result":true}`, status: 302, fails: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t, c.answer)
			if c.status != 0 {
				s.status = c.status
			}
			e := remote(t, &Remote{OPA: s.URL + "/v1/data/toolkeep", Bearer: func(context.Context) (string, error) { return "secret-token", nil }})
			v, err := e.Decide(t.Context(), ask())
			if c.fails != "" || c.status != 0 {
				if err == nil || !strings.Contains(err.Error(), c.fails) || v.Allow || strings.Contains(err.Error(), s.URL) || strings.Contains(err.Error(), "secret-token") {
					t.Fatalf("%+v %v", v, err)
				}
				return
			}
			if err != nil || v.Allow != c.allow || !strings.Contains(v.Reason, c.reason) || len(v.Obligations) != c.owes {
				t.Fatalf("%+v %v", v, err)
			}
			in, _ := s.body["input"].(map[string]any)
			if s.path != "POST /v1/data/toolkeep" || s.token != "Bearer secret-token" || in["caller"].(map[string]any)["subject"] != "alice" || in["arguments"].(map[string]any)["amount"] != 5.0 {
				t.Errorf("%s %q %v", s.path, s.token, s.body)
			}
			if _, err := e.Decide(t.Context(), ask()); err != nil || s.asked != 2 {
				t.Errorf("asked %d times: an answer without cache_ttl_seconds is not kept (%v)", s.asked, err)
			}
		})
	}
}

// TestRemoteABAC: the request and answers of a service of kind ABAC, and how long they are kept.
func TestRemoteABAC(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		answer string
		allow  bool
		reason string
		kept   time.Duration
		fails  string
		owes   int
	}{
		{answer: `{"allowed":true,"cache_ttl_seconds":60}`, allow: true, kept: time.Minute},
		{answer: `{"allowed":false,"reason":"policy-7"}`, reason: "policy-7", kept: 5 * time.Minute},
		{answer: `{"allowed":true,"cache_ttl_seconds":0}`, allow: true},
		{answer: `{"allowed":true,"cache_ttl_seconds":99999999}`, allow: true, kept: 5 * time.Minute},
		{answer: `{"allowed":true,"obligations":[{"kind":"require_approval","reason":"late"}]}`, allow: true, kept: 5 * time.Minute, owes: 1},
		{answer: `{"allowed":true,"cache_ttl_seconds":-1}`, fails: "cache_ttl_seconds"},
		{answer: `{"allowed":true,"obligations":[1]}`, fails: "obligation"},
		{answer: `{"allowed":"true"}`, fails: "allowed"},
		{answer: `{}`, fails: "allowed"},
	} {
		t.Run(c.answer, func(t *testing.T) {
			s := newService(t, c.answer)
			at := now
			e := remote(t, &Remote{ABAC: s.URL + "/l01"}, func(c *Config) { c.Clock = func() time.Time { return at } })
			v, err := e.Decide(t.Context(), ask())
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("%+v %v", v, err)
				}
				return
			}
			if err != nil || v.Allow != c.allow || v.Reason != c.reason || len(v.Obligations) != c.owes {
				t.Fatalf("%+v %v", v, err)
			}
			if s.path != "POST /l01/api/v1/abac/check-permission" || s.body["agent_id"] != "alice" || s.body["resource_type"] != "tool" ||
				s.body["resource_id"] != "billing.eu.refund" || s.body["action"] != "execute" || s.body["context"].(map[string]any)["call"] == nil {
				t.Errorf("%s %v", s.path, s.body)
			}
			for _, look := range []struct {
				after time.Duration
				fresh bool
			}{{c.kept - 1, false}, {c.kept, true}} {
				before := s.asked
				at = now.Add(look.after)
				if look.after < 0 {
					continue
				}
				if _, err := e.Decide(t.Context(), ask()); err != nil || (s.asked > before) != look.fresh {
					t.Errorf("after %s asked %v (%v)", look.after, s.asked > before, err)
				}
			}
			before := s.asked
			if _, err := e.Decide(t.Context(), ask(changes[partArguments])); err != nil || s.asked != before+1 {
				t.Errorf("the answer was given for other arguments (%v)", err)
			}
		})
	}
}

// TestRemoteIsAway: a service that does not answer in time, or is not there, allows nothing.
func TestRemoteIsAway(t *testing.T) {
	s := newService(t, `{"result":true}`)
	s.wait = make(chan struct{})
	defer close(s.wait)
	e := remote(t, &Remote{OPA: s.URL}, func(c *Config) { c.Timeout = 50 * time.Millisecond })
	if v, err := e.Decide(t.Context(), ask()); err == nil || v.Allow || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("%+v %v", v, err)
	}
	gone := newService(t, "")
	gone.Close()
	e = remote(t, &Remote{OPA: gone.URL})
	if v, err := e.Decide(t.Context(), ask()); err == nil || v.Allow || strings.Contains(err.Error(), "/v1") {
		t.Errorf("%+v %v", v, err)
	}
}

// TestHealthOfRemote: health tells of a service that does not answer and, without a further question, that it is there again;
// of one whose answers cannot be used it tells until one can.
func TestHealthOfRemote(t *testing.T) {
	s := newService(t, `{"result":true}`)
	e := remote(t, &Remote{OPA: s.URL})
	decide := func(fails bool) {
		t.Helper()
		if _, err := e.Decide(t.Context(), ask()); (err != nil) != fails {
			t.Fatalf("fails: %t, got %v", fails, err)
		}
	}
	tells := func(of string) {
		t.Helper()
		err := e.Health(t.Context())
		if of == "" && err != nil || of != "" && (err == nil || !strings.Contains(err.Error(), of) || strings.Contains(err.Error(), s.URL)) {
			t.Fatalf("health is %v, want %q", err, of)
		}
	}
	there := e.c.Remote.OPA
	tells("")
	e.c.Remote.OPA = "http://127.0.0.1:1" // where nothing listens
	decide(true)
	tells("cannot be reached")
	tells("cannot be reached")
	e.c.Remote.OPA = there
	tells("")
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := e.Decide(left, ask()); err == nil {
		t.Fatal("a question of a caller that left was answered")
	}
	tells("")
	s.status = http.StatusMethodNotAllowed
	decide(true)
	tells("status 405")
	s.status = http.StatusOK
	tells("status 405")
	decide(false)
	tells("")
}
