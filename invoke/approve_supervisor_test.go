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
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/control/approvals"
)

const supervisorKey = "0123456789abcdef0123456789abcdef"

// supervision is a service that answers as a test says, and holds each request against its signature.
type supervision struct {
	*httptest.Server
	status int
	answer func(e map[string]any) string
	asked  []map[string]any
}

// nonces notes each nonce once.
type nonces map[[sha256.Size]byte]bool

func (n nonces) Claim(_ context.Context, nonce [sha256.Size]byte) (bool, error) {
	used := n[nonce]
	n[nonce] = true
	return !used, nil
}

// supervised is a desk with such a service.
func supervised(t *testing.T, denyAfter time.Duration) (*desk, *supervision) {
	d := newDesk(t, "rules: [{name: two, tools: [std.risky], approvals: 2, approvers: [{roles: [lead]}]}]")
	s := &supervision{status: 200}
	verifier := &signing.Verifier{Nonces: nonces{}, Now: func() time.Time { return d.now() }}
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
			err = verifier.Verify(r.Context(), signed, "test", [][]byte{[]byte(supervisorKey)})
		}
		if err != nil {
			t.Errorf("%v %v", err, h)
		}
		s.asked = append(s.asked, e)
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.answer(e))
	}))
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() { client.CloseIdleConnections(); s.Close() })
	d.control = approvals.New(approvals.Config{Book: d.book, Calls: d.pipeline, Store: d.store, Clock: func() time.Time { return d.now() }, Log: slog.New(slog.DiscardHandler),
		Supervisor: &approvals.Supervisor{URL: s.URL + "/escalations?x=1", Client: client, Timeout: 20 * time.Second, DenyAfter: denyAfter,
			Key: func(context.Context) (string, error) { return supervisorKey, nil }}})
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
		return fmt.Sprintf(`{"decision":%q,"digest":%q,"decided_by":"sue","reason":"because"}`, what, e["digest"])
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
		func(map[string]any) string { return `{"decision":"approve","decided_by":"sue"}` },
		func(map[string]any) string { return `{"decision":"approve","digest":"other"}` },
		func(map[string]any) string { return `{"decision":true}` },
		func(map[string]any) string { return `approve` },
		func(map[string]any) string { return `{"decision":"deny","decision":"approve"}` },
		func(map[string]any) string { return strings.Repeat("x", 70<<10) },
		func(e map[string]any) string {
			return fmt.Sprintf(`{"decision":"approve","digest":%q,"decided_by":"alice"}`, e["digest"])
		}, // the caller
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
	e := s.asked[0]
	if e["invocation_id"] != id || e["tenant_id"] != "acme" || e["agent_id"] != "alice" || e["tool_id"] != "std.risky" || e["needed"] != 2.0 || e["session_id"] != "s1" ||
		fmt.Sprint(e["parameters"]) != "map[n:7]" || fmt.Sprint(e["roles"]) != "[lead]" || e["why"] == "" {
		t.Errorf("it was asked %v", e)
	}
	s.status, s.answer = 200, decision("approve")
	d.sweep()
	got, err := d.control.Get(t.Context(), alice, id)
	if err != nil || got.State != "approved" || got.Decisions[0].By != "supervisor" || got.Decisions[0].For != "sue" {
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
