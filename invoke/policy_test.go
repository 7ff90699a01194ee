package invoke_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/invoke"
)

// fakePolicy answers as a test says, and keeps what it was asked.
type fakePolicy struct {
	reads  bool
	hides  string // a tool, from all
	decide func(q *access.Question) (access.Verdict, error)

	mu    sync.Mutex
	asked []string // the arguments
}

func (f *fakePolicy) Decide(_ context.Context, q *access.Question) (access.Verdict, error) {
	f.mu.Lock()
	f.asked = append(f.asked, string(canon.Append(nil, q.Arguments)))
	f.mu.Unlock()
	return f.decide(q)
}
func (f *fakePolicy) ReadsArguments() bool { return f.reads }
func (f *fakePolicy) Sees(_ *toolkeep.Principal, t *toolkeep.Tool) bool {
	return t.ID != f.hides
}
func (f *fakePolicy) Refuses(*toolkeep.Principal, *toolkeep.Tool) bool { return false }
func (f *fakePolicy) Audience(*toolkeep.Principal) (string, bool)      { return "", true }
func allow(*access.Question) (access.Verdict, error)                   { return access.Verdict{Allow: true}, nil }
func unable(*access.Question) (access.Verdict, error)                  { return access.Verdict{}, errors.New("down") }
func refuse(reason string) func(*access.Question) (access.Verdict, error) {
	return func(*access.Question) (access.Verdict, error) {
		return access.Verdict{Reason: reason, Rule: "data.toolkeep.deny"}, nil
	}
}

func oblige(kind string) func(*access.Question) (access.Verdict, error) {
	return func(*access.Question) (access.Verdict, error) {
		return access.Verdict{Allow: true, Obligations: []access.Obligation{{Kind: kind, Reason: "it is late", Rule: "night"}}}, nil
	}
}

// TestPolicyDecides: what the policy refuses is refused with its reason, counts and is not
// executed; what it cannot decide is refused and does not count.
func TestPolicyDecides(t *testing.T) {
	for _, c := range []struct {
		name   string
		roles  bool // refuse
		decide func(*access.Question) (access.Verdict, error)
		code   toolkeep.Code
		says   string
		reason any
		counts int64
		asked  int
	}{
		{name: "allowed", decide: allow, asked: 1},
		{name: "denied", decide: refuse("not on Sundays"), code: toolkeep.PolicyDenied, says: "not on Sundays", reason: "ABAC_DENIED", counts: 1, asked: 1},
		{name: "denied without a reason", decide: refuse(""), code: toolkeep.PolicyDenied, says: "the policy denies the call", reason: "ABAC_DENIED", counts: 1, asked: 1},
		{name: "no answer", decide: unable, code: toolkeep.PolicyEngineUnavailable, says: "cannot decide", reason: "ABAC_ERROR", asked: 1},
		{name: "an approval", decide: oblige(access.ObligeApproval), code: toolkeep.ApprovalUnavailable, says: "it is late", reason: "ESCALATION_ERROR", asked: 1},
		{name: "an unknown obligation", decide: oblige("watermark"), code: toolkeep.PolicyEngineUnavailable, says: "cannot decide", reason: "ABAC_ERROR", asked: 1},
		{name: "roles refuse first", roles: true, decide: allow, code: toolkeep.PermissionDenied, says: "denied by the test", reason: "RBAC_DENIED", counts: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t)
			h.tool("read")
			h.access.deny.Store(c.roles)
			policy := &fakePolicy{decide: c.decide}
			h.access.policy = policy
			_, err := h.call(&toolkeep.Call{Tool: "std.read"})
			if c.code == "" {
				if err != nil || h.executor.calls.Load() != 1 {
					t.Fatal(err)
				}
			} else {
				wantCode(t, err, c.code)
				if !strings.Contains(err.Message, c.says) || err.Details["reason"] != c.reason || h.executor.calls.Load() != 0 {
					t.Errorf("%q %v, %d executed", err.Message, err.Details, h.executor.calls.Load())
				}
			}
			if h.access.denials.Load() != c.counts || len(policy.asked) != c.asked {
				t.Errorf("%d counted, asked %d times", h.access.denials.Load(), len(policy.asked))
			}
		})
	}
}

// TestPolicySeesWhatIsExecuted: a policy that reads arguments decides those that were sent, and
// those that validation made of them, also where the answer is kept.
func TestPolicySeesWhatIsExecuted(t *testing.T) {
	parameters := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","default":9}}}`)
	for _, c := range []struct {
		name, sent string
		reads      bool
		asked      []string
		denied     string // the arguments that it denies
	}{
		{name: "sent as they are executed", sent: `{"n":5}`, reads: true, asked: []string{`{"n":5}`}},
		{name: "coerced", sent: `{"n":"5"}`, reads: true, asked: []string{`{"n":"5"}`, `{"n":5}`}},
		{name: "coerced and denied", sent: `{"n":"5"}`, reads: true, asked: []string{`{"n":"5"}`, `{"n":5}`}, denied: `{"n":5}`},
		{name: "a default that is denied", sent: `{}`, reads: true, asked: []string{`{}`, `{"n":9}`}, denied: `{"n":9}`},
		{name: "sent and denied", sent: `{"n":"5"}`, reads: true, asked: []string{`{"n":"5"}`}, denied: `{"n":"5"}`},
		{name: "not read", sent: `{"n":"5"}`, asked: []string{`{"n":"5"}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t)
			h.tool("read", func(m *toolkeep.Manifest) { m.ParametersSchema = parameters })
			denied := ""
			policy := &fakePolicy{reads: c.reads, decide: func(q *access.Question) (access.Verdict, error) {
				return access.Verdict{Allow: string(canon.Append(nil, q.Arguments)) != denied, Reason: "not these"}, nil
			}}
			h.access.policy = policy
			call := &toolkeep.Call{Tool: "std.read", Arguments: []byte(c.sent), Key: "k"}
			if _, err := h.call(call); err != nil {
				t.Fatal(err)
			}
			if strings.Join(policy.asked, " ") != strings.Join(c.asked, " ") && c.denied == "" {
				t.Errorf("asked about %s, want %s", policy.asked, c.asked)
			}
			if c.denied == "" {
				return
			}
			denied, policy.asked = c.denied, nil
			for _, key := range []string{"k", "another"} { // k has a kept answer
				call.Key = key
				_, err := h.call(call)
				wantCode(t, err, toolkeep.PolicyDenied)
				if policy.asked[len(policy.asked)-1] != c.denied {
					t.Errorf("with the key %s asked about %s", key, policy.asked)
				}
			}
			if h.executor.calls.Load() != 1 {
				t.Errorf("%d executed", h.executor.calls.Load())
			}
		})
	}
}

// TestPolicyIsAskedByTheWorker: a waiting call is decided when it is admitted, and again when it
// runs; while the policy cannot answer it waits.
func TestPolicyIsAskedByTheWorker(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	policy := &fakePolicy{decide: allow}
	h.access.policy = policy
	res, err := h.call(&toolkeep.Call{Tool: "std.read", Async: true, Session: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	ref := toolkeep.CallRef{Tenant: "acme", ID: res.InvocationID}
	policy.decide = unable
	if err := h.pipeline.Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if row := h.row(ref.ID); row.State != toolkeep.CallQueued {
		t.Fatalf("%s %s", row.State, row.Code)
	}
	policy.decide = func(q *access.Question) (access.Verdict, error) {
		return access.Verdict{Reason: "session " + q.Call.Session + " has ended"}, nil
	}
	if err := h.pipeline.Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if row := h.row(ref.ID); row.State != toolkeep.CallRefused || row.Code != toolkeep.PolicyDenied || row.Message != "session s1 has ended" || h.executor.calls.Load() != 0 {
		t.Errorf("%s %s %q", row.State, row.Code, row.Message)
	}
}

// TestPolicyInExplain: explain shows the policy's check with its rule, also after the roles refused.
func TestPolicyInExplain(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	h.access.policy = &fakePolicy{decide: refuse("not on Sundays")}
	for _, roles := range []bool{false, true} {
		h.access.deny.Store(roles)
		got, err := h.pipeline.Explain(t.Context(), alice, &toolkeep.Call{Tool: "std.read"})
		if err != nil {
			t.Fatal(err)
		}
		x := got.(*invoke.Explanation)
		checks, want := x.Steps[invoke.StepAuthorise].Checks, toolkeep.PolicyDenied
		if roles {
			want = toolkeep.PermissionDenied
		}
		last := checks[len(checks)-1].(map[string]any)
		if x.Steps[invoke.StepAuthorise].Code != want || last["check"] != "policy" || last["rule"] != "data.toolkeep.deny" || last["reason"] != "not on Sundays" || last["allowed"] != false {
			t.Errorf("%s %v", x.Steps[invoke.StepAuthorise].Code, last)
		}
		if v := x.Steps[invoke.StepValidate]; v.Verdict != "pass" {
			t.Errorf("validate %+v", v)
		}
	}
}

// TestPolicyWordsAreCleaned: a policy's reason that quotes a secret argument is shown without it.
func TestPolicyWordsAreCleaned(t *testing.T) {
	h := newHarness(t)
	h.tool("read", func(m *toolkeep.Manifest) {
		m.ParametersSchema = json.RawMessage(`{"type":"object","properties":{"pin":{"type":"string","format":"password"}}}`)
	})
	quote := func(q *access.Question) string { return "the pin " + q.Arguments["pin"].(string) + " is wrong" }
	for name, decide := range map[string]func(q *access.Question) (access.Verdict, error){
		"denied": func(q *access.Question) (access.Verdict, error) { return access.Verdict{Reason: quote(q)}, nil },
		"approval": func(q *access.Question) (access.Verdict, error) {
			return access.Verdict{Allow: true, Obligations: []access.Obligation{{Kind: access.ObligeApproval, Reason: quote(q)}}}, nil
		},
	} {
		h.access.policy = &fakePolicy{reads: true, decide: decide}
		_, err := h.call(&toolkeep.Call{Tool: "std.read", Arguments: []byte(`{"pin":"tiger-4711"}`)})
		if err == nil || !strings.Contains(err.Message, "is wrong") || strings.Contains(err.Message, "4711") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusedCallsDoNotFloodTheLog: however many calls a policy cannot answer, the log has one line
// of each cause.
func TestRefusedCallsDoNotFloodTheLog(t *testing.T) {
	var log bytes.Buffer
	h := newHarness(t, func(c *invoke.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	h.tool("read")
	fault := error(nil)
	h.access.policy = &fakePolicy{decide: func(q *access.Question) (access.Verdict, error) {
		return access.Verdict{}, fault
	}}
	for i := range 300 {
		fault = &access.Undecided{Cause: []string{"timeout", "service"}[i%2], Err: errors.New("the cause of one call")}
		_, err := h.call(&toolkeep.Call{Tool: "std.read"})
		wantCode(t, err, toolkeep.PolicyEngineUnavailable)
	}
	if got := log.String(); strings.Count(got, "could not decide a call") != 2 || strings.Count(got, "cause=timeout") != 1 || !strings.Contains(got, "the cause of one call") {
		t.Errorf("the log has %s", got)
	}
}

// TestPolicySeesTheMethodLater: a call that waited reaches the policy with the method by which its
// caller came in.
func TestPolicySeesTheMethodLater(t *testing.T) {
	for _, method := range []string{"api_key", access.MethodOAuth, access.MethodMTLS, access.MethodProxy} {
		h := newHarness(t)
		h.tool("read")
		var methods []string
		h.access.policy = &fakePolicy{decide: func(q *access.Question) (access.Verdict, error) {
			methods = append(methods, q.Principal.Method)
			return access.Verdict{Allow: true}, nil
		}}
		caller := *alice
		caller.Method = method
		if _, err := h.pipeline.Invoke(t.Context(), &caller, &toolkeep.Call{Tool: "std.read", Async: true}); err != nil {
			t.Fatal(err)
		}
		h.work()
		if len(methods) != 2 || methods[0] != method || methods[1] != method {
			t.Errorf("%s: the policy saw %v", method, methods)
		}
	}
}

// TestSessionOfAWaitingCall: whether a caller had a session is known later where it was stored, and else, as of a call that an
// older program stored, it is said that it is not.
func TestSessionOfAWaitingCall(t *testing.T) {
	for _, method := range []string{"api_key", access.MethodOAuth, access.MethodProxy} {
		for _, stored := range []bool{true, false} {
			h := newHarness(t)
			h.tool("read")
			unknown := 0
			policy := &fakePolicy{decide: func(q *access.Question) (access.Verdict, error) {
				if q.Principal.SessionUnknown {
					unknown++
				}
				return access.Verdict{Allow: true}, nil
			}}
			if stored {
				h.access.policy = policy
			}
			caller := *alice
			caller.Method = method
			if _, err := h.pipeline.Invoke(t.Context(), &caller, &toolkeep.Call{Tool: "std.read", Async: true}); err != nil {
				t.Fatal(err)
			}
			h.access.policy = policy
			h.work()
			if (unknown != 0) != (!stored && method != "api_key") || len(policy.asked) == 0 {
				t.Errorf("%s, stored %t: unknown %d times of %d", method, stored, unknown, len(policy.asked))
			}
		}
	}
}

// TestClaimsWaitSealed: a call that waits is decided later by the claims and the session that admitted it, which are stored
// with it as long as it waits, sealed, and only where there is a policy.
func TestClaimsWaitSealed(t *testing.T) {
	for name, policy := range map[string]*fakePolicy{"a policy": {}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.tool("read")
			var seen []string
			if policy != nil {
				policy.decide = func(q *access.Question) (access.Verdict, error) {
					seen = append(seen, q.Principal.Session+string(canon.Append(nil, q.Principal.Claims.Tree())))
					return access.Verdict{Allow: true}, nil
				}
				h.access.policy = policy
			}
			caller := *alice
			caller.Method, caller.Session, caller.Claims = access.MethodOAuth, "o1", toolkeep.NewClaims(map[string]any{"dept": "private"})
			res, err := h.pipeline.Invoke(t.Context(), &caller, &toolkeep.Call{Tool: "std.read", Async: true})
			if err != nil {
				t.Fatal(err)
			}
			row := h.row(res.InvocationID)
			if (row.SealedCaller != nil) != (policy != nil) || bytes.Contains(row.SealedCaller, []byte("private")) {
				t.Errorf("stored is %q", row.SealedCaller)
			}
			h.work()
			const want = `o1{"dept":"private"}`
			if policy != nil && (len(seen) != 2 || seen[0] != want || seen[1] != want) {
				t.Errorf("the policy saw %v", seen)
			}
			if row := h.row(res.InvocationID); row.State != toolkeep.CallSucceeded || row.SealedCaller != nil {
				t.Errorf("%s %s, stored is %q", row.State, row.Code, row.SealedCaller)
			}
		})
	}
}
