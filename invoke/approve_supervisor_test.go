package invoke_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/control/approvals"
)

const supervisorKey = "0123456789abcdef0123456789abcdef"

// supervision is a service that answers as a test says, and holds each request against its signature.
type supervision struct {
	*httptest.Server
	of     *approvals.Supervisor // what asks it
	status int
	answer func(e map[string]any) string
	mu     sync.Mutex // a request that was left may still be answered
	asked  []map[string]any
	until  []time.Duration // to the deadline of each request
}

// RoundTrip notes how long a request may take.
func (s *supervision) RoundTrip(r *http.Request) (*http.Response, error) {
	end, _ := r.Context().Deadline()
	s.until = append(s.until, time.Until(end))
	return s.Client().Transport.RoundTrip(r)
}

// nonces notes each nonce once.
type nonces struct{ used sync.Map }

func (n *nonces) Claim(_ context.Context, nonce [sha256.Size]byte) (bool, error) {
	_, used := n.used.LoadOrStore(nonce, true)
	return !used, nil
}

// supervised is a desk with such a service.
func supervised(t *testing.T, denyAfter time.Duration) (*desk, *supervision) {
	d := newDesk(t, "rules: [{name: two, tools: [std.risky], approvals: 2, approvers: [{roles: [lead]}]}]")
	s := &supervision{status: 200}
	verifier := &signing.Verifier{Nonces: &nonces{}, Now: func() time.Time { return d.now() }}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		e := map[string]any{}
		if err == nil {
			err = json.Unmarshal(raw, &e)
		}
		h := r.Header
		signed := &signing.Request{Method: r.Method, Target: r.RequestURI, Signature: h.Get(signing.HeaderSignature), Timestamp: h.Get(signing.HeaderTimestamp),
			Nonce: h.Get(signing.HeaderNonce), Digest: h.Get(signing.HeaderDigest), Header: func(name string) []string { return h.Values(name) },
			Body: func() ([sha256.Size]byte, error) { return sha256.Sum256(raw), nil }}
		if err == nil {
			err = verifier.Verify(r.Context(), signed, "test", signing.Fixed([]byte(supervisorKey)))
		}
		if err != nil {
			t.Errorf("%v %v", err, h)
		}
		s.mu.Lock()
		s.asked = append(s.asked, e)
		s.mu.Unlock()
		text := s.answer(e)
		if text == "fail" {
			w.WriteHeader(http.StatusInternalServerError)
		} else {
			w.WriteHeader(s.status)
		}
		_, _ = io.WriteString(w, text)
	}))
	client := &http.Client{Transport: s, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(s.Close)
	s.of = &approvals.Supervisor{URL: s.URL + "/escalations?x=1", Client: client, Timeout: 20 * time.Second, DenyAfter: denyAfter,
		Key: func(context.Context) (string, error) { return supervisorKey, nil }}
	d.control = approvals.New(approvals.Config{Book: d.book, Calls: d.pipeline, Store: d.store, Clock: func() time.Time { return d.now() }, Log: slog.New(slog.DiscardHandler),
		Supervisor: s.of})
	return d, s
}

func (d *desk) sweep() {
	d.t.Helper()
	if err := d.control.Sweep(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	d.settle()
}

func decision(what string) func(map[string]any) string {
	return func(e map[string]any) string {
		return fmt.Sprintf(`{"decision":%q,"invocation_id":%q,"digest":%q,"decided_by":"sue","reason":"because"}`, what, e["invocation_id"], e["digest"])
	}
}

// answers is a text with the call's id and digest in the place of $id and $digest.
func answers(text string) func(map[string]any) string {
	return func(e map[string]any) string {
		return strings.NewReplacer("$id", e["invocation_id"].(string), "$digest", e["digest"].(string)).Replace(text)
	}
}

// TestSupervisor: a service decides about calls that wait, is asked again while it has not, and what it
// says otherwise decides nothing.
func TestSupervisor(t *testing.T) {
	d, s := supervised(t, 0)
	now := time.Now()
	d.now = func() time.Time { return now }
	id := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":7}`), Session: "s1"})
	for i, say := range []func(map[string]any) string{
		decision("pending"),
		decision("maybe"),
		answers(`{"decision":"approve","invocation_id":"$id","decided_by":"sue"}`),
		answers(`{"decision":"approve","invocation_id":"$id","digest":"other"}`),
		answers(`{"decision":"approve","digest":"$digest"}`),
		answers(`{"decision":"approve","invocation_id":"other","digest":"$digest"}`),
		answers(`{"decision":"deny","reason":"no call is named"}`),
		answers(`{"decision":"deny","invocation_id":"other","digest":"$digest"}`),
		answers(`{"invocation_id":"$id","decision":true}`),
		answers(`{"invocation_id":"$id","decision":"deny","decision":"approve"}`),
		func(map[string]any) string { return `approve` },
		func(map[string]any) string { return strings.Repeat("x", 70<<10) },
		answers(`{"decision":"approve","invocation_id":"$id","digest":"$digest","decided_by":"alice"}`), // the caller
	} {
		s.answer = say
		d.sweep()
		d.sweep() // not yet again
		if len(s.asked) != i+1 || d.row(id).State != toolkeep.CallPendingApproval {
			t.Fatalf("answer %d: asked %d times, the call is %s", i, len(s.asked), d.row(id).State)
		}
		now = now.Add(5 * time.Second)
	}
	for _, status := range []int{302, 404, 500} {
		s.status, s.answer = status, decision("approve")
		d.sweep()
		if d.row(id).State != toolkeep.CallPendingApproval {
			t.Fatalf("status %d decided", status)
		}
		now = now.Add(5 * time.Second)
	}
	if shortest := slices.Min(s.until); shortest < 10*time.Second {
		t.Errorf("a question had %s; its timeout is 20 s", shortest)
	}
	e := s.asked[0]
	if e["invocation_id"] != id || e["tenant_id"] != "acme" || e["agent_id"] != "alice" || e["tool_id"] != "std.risky" || e["needed"] != 2.0 || e["session_id"] != "s1" ||
		fmt.Sprint(e["parameters"]) != "map[n:7]" || fmt.Sprint(e["roles"]) != "[lead]" || e["why"] == "" {
		t.Errorf("it was asked %v", e)
	}
	s.status, s.answer = 200, decision("approve")
	d.sweep()
	got, err := d.control.Get(t.Context(), alice, id)
	if err != nil || got.State != "approved" || got.Decisions[0].By != "supervisor" || !got.Decisions[0].Service || got.Decisions[0].For != "sue" {
		t.Fatalf("%+v %v", got, err)
	}
	d.work()
	d.sweep()
	if d.executor.calls.Load() != 1 || d.row(id).State != toolkeep.CallSucceeded {
		t.Errorf("%d executed, %s", d.executor.calls.Load(), d.row(id).State)
	}
	denied := d.parked(&toolkeep.Call{Tool: "std.risky"})
	s.answer = decision("deny")
	d.sweep()
	if row := d.row(denied); row.Code != toolkeep.ApprovalDenied || !strings.Contains(row.Message, "because") {
		t.Errorf("%s %s", row.Code, row.Message)
	}
}

// TestSupervisorIsAway: without an answer a call waits for those who approve here, or is refused after a
// time, as the settings say.
func TestSupervisorIsAway(t *testing.T) {
	for _, deny := range []time.Duration{0, time.Minute} {
		d, s := supervised(t, deny)
		now := time.Now()
		d.now = func() time.Time { return now }
		s.answer = decision("pending")
		id := d.parked(&toolkeep.Call{Tool: "std.risky"})
		d.sweep()
		s.Close()
		now = now.Add(50 * time.Second)
		d.sweep()
		if state := d.row(id).State; state != toolkeep.CallPendingApproval {
			t.Fatalf("%s before the time was over", state)
		}
		now = now.Add(time.Minute)
		d.sweep()
		row := d.row(id)
		if deny == 0 {
			if row.State != toolkeep.CallPendingApproval {
				t.Errorf("%s %s", row.State, row.Code)
			}
			lead := &toolkeep.Principal{Subject: "lea", Tenant: "acme", Roles: []string{"lead"}, KeyID: "kl"}
			if got := d.approve(lead, id); got.Have != 1 {
				t.Errorf("%+v", got)
			}
			continue
		}
		if row.State != toolkeep.CallRefused || row.Code != toolkeep.ApprovalUnavailable {
			t.Errorf("%s %s", row.State, row.Code)
		}
		if _, err := d.book.Get(t.Context(), row.Ref()); !errors.Is(err, toolkeep.ErrNotFound) {
			t.Errorf("its request is left: %v", err)
		}
	}
}

// TestSupervisorAndOnePoisonCall: a call about which the service fails or hangs does not keep it from others, whether
// they wait for longer or not.
func TestSupervisorAndOnePoisonCall(t *testing.T) {
	for name, hangs := range map[string]bool{"status 500": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			d, s := supervised(t, time.Minute)
			began := time.Now()
			var passed atomic.Int64 // the service reads the clock when nothing waits for it any more
			d.now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
			poison := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":1}`)})
			passed.Add(int64(time.Second))
			other := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":2}`)})
			over := make(chan struct{})
			t.Cleanup(func() { close(over) })
			s.answer = func(e map[string]any) string {
				switch {
				case e["invocation_id"] != poison:
					return decision("deny")(e)
				case hangs:
					<-over
				}
				return "fail"
			}
			if hangs {
				s.of.Timeout = 200 * time.Millisecond
			}
			d.sweep()
			if hangs { // it ends the round; the next one begins with the other
				passed.Add(int64(5 * time.Second))
				d.sweep()
			}
			if row := d.row(other); row.Code != toolkeep.ApprovalDenied {
				t.Errorf("the other call is %s %s", row.State, row.Code)
			}
			passed.Add(int64(2 * time.Minute))
			d.sweep()
			if row := d.row(poison); row.State != toolkeep.CallRefused || row.Code != toolkeep.ApprovalUnavailable {
				t.Errorf("the call without an answer is %s %s", row.State, row.Code)
			}
		})
	}
}

// TestSupervisorIsNotAskedYet: a call that waited while no node asked about it is not refused for the silence about it
// or others.
func TestSupervisorIsNotAskedYet(t *testing.T) {
	d, s := supervised(t, time.Minute)
	now := time.Now()
	d.now = func() time.Time { return now }
	s.Close()
	asked := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":1}`)})
	d.sweep()
	later := d.parked(&toolkeep.Call{Tool: "std.risky", Arguments: []byte(`{"n":2}`)})
	now = now.Add(2 * time.Minute)
	d.sweep() // asks about the one that it did not ask about yet, and then no more
	if row := d.row(asked); row.Code != toolkeep.ApprovalUnavailable {
		t.Errorf("the call that was asked about is %s %s", row.State, row.Code)
	}
	if row := d.row(later); row.State != toolkeep.CallPendingApproval {
		t.Errorf("the call that was asked about now for the first time is %s %s", row.State, row.Code)
	}
}

// TestSupervisorOfItsNamesake: a key may have the name under which the service decides; the service decides about its
// calls, and a decision of the key is not taken for one of the service.
func TestSupervisorOfItsNamesake(t *testing.T) {
	d, s := supervised(t, 0)
	caller := &toolkeep.Principal{Subject: "supervisor", Tenant: "acme", Roles: []string{"agent", "lead"}, Scope: alice.Scope, KeyID: "kn"}
	id := d.parked(&toolkeep.Call{Tool: "std.risky"})
	if got := d.approve(caller, id); got.Have != 1 || got.Decisions[0].By != "supervisor" || got.Decisions[0].Service {
		t.Errorf("%+v", got)
	}
	q := &approval.Request{Subject: "supervisor", State: approval.Pending, ExpiresAt: time.Now().Add(time.Hour)}
	if err := q.Supervised("sue", true, "", time.Now()); err != nil || q.State != approval.Approved || !q.Decisions[0].Service {
		t.Errorf("%+v %v", q.Decisions, err)
	}
	s.answer = decision("approve")
	d.sweep()
	var decided []map[string]any
	for _, text := range d.events("ai.agent.tool.approval.decided") {
		var data map[string]any
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			t.Fatal(err)
		}
		decided = append(decided, data)
	}
	if len(decided) != 2 || decided[0]["decided_by_service"] != nil || decided[1]["decided_by_service"] != true {
		t.Errorf("%v", decided)
	}
}
