package rest

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/approvals"
)

// fakeApprovals knows one link.
type fakeApprovals struct {
	Approvals
	state   string
	decided *approvals.Verdict
	made    string
}

const linkToken = "tkd_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ"

func (f *fakeApprovals) one() approvals.Approval {
	return approvals.Approval{InvocationID: "i1", State: f.state, ToolID: "pay.out", ToolVersion: "1.0.0", AgentID: "<b>bot</b>", Why: "risk", Digest: "d1", Needed: 1,
		YouDecide: f.state == "pending", CreatedAt: at, ExpiresAt: at.Add(time.Hour), Decisions: []approvals.Decision{}, Parameters: map[string]any{"note": `"><script>x</script>`}}
}

func (f *fakeApprovals) MakeLink(_ context.Context, p *toolkeep.Principal, id, approver string, until time.Time) (*approvals.DecisionLink, error) {
	f.made = p.Subject + " " + id + " " + approver + " " + until.UTC().Format(time.RFC3339)
	return &approvals.DecisionLink{Token: linkToken, Path: approvals.LinkPath + "?token=" + linkToken, Approver: approver, ExpiresAt: at}, nil
}

func (f *fakeApprovals) ByLink(_ context.Context, token string) (approvals.Approval, time.Time, error) {
	if token != linkToken {
		return approvals.Approval{}, time.Time{}, toolkeep.NewError(toolkeep.ResourceNotFound, "no link")
	}
	return f.one(), at, nil
}

func (f *fakeApprovals) DecideByLink(_ context.Context, token string, v approvals.Verdict) (approvals.Approval, error) {
	if token != linkToken {
		return approvals.Approval{}, toolkeep.NewError(toolkeep.ResourceNotFound, "no link")
	}
	f.decided, f.state = &v, "approved"
	return f.one(), nil
}

// TestDecisionLinks: a link needs no credential, a GET changes nothing, the page shows texts of others as text and is
// framed by no one, and the log has no token.
func TestDecisionLinks(t *testing.T) {
	s := newSystem()
	f := &fakeApprovals{state: "pending"}
	s.Approvals = f
	w := s.do(t, "POST", "/api/v1/approvals/i1/links", `{"approver":"lea","expires_at":"2026-03-01T00:00:00Z"}`)
	wantStatus(t, w, 201)
	if !strings.Contains(w.Body.String(), linkToken) || f.made != "admin i1 lea 2026-03-01T00:00:00Z" {
		t.Errorf("%s %s", f.made, w.Body)
	}
	const none, form = "Authorization: ", "application/x-www-form-urlencoded"
	path := approvals.LinkPath + "?token=" + linkToken
	for range 2 {
		w = s.do(t, "GET", path, "", none)
		wantStatus(t, w, 200)
	}
	if !strings.Contains(w.Body.String(), `"link_expires_at"`) || f.decided != nil {
		t.Errorf("%s %v", w.Body, f.decided)
	}
	w = s.do(t, "GET", path, "", none, "Accept: text/html,application/xhtml+xml")
	wantStatus(t, w, 200)
	h := w.Header()
	if page := w.Body.String(); strings.Contains(page, "<script>") || strings.Contains(page, "<b>bot") || !strings.Contains(page, `name="token" value="`+linkToken) ||
		!strings.HasPrefix(h.Get("Content-Type"), "text/html") || !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") ||
		h.Get("Referrer-Policy") != "same-origin" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s", h, page)
	}
	problem(t, s.do(t, "GET", approvals.LinkPath+"?token=tkd_other", "", none), toolkeep.ResourceNotFound)
	for _, c := range []struct {
		path, kind, body string
		code             toolkeep.Code
	}{
		{approvals.LinkPath, "application/json", `{"decision":"approve","token":"tkd_other"}`, toolkeep.ResourceNotFound},
		{path, "application/json", `{"decision":"maybe"}`, toolkeep.InvalidParameters},
		{path, "application/json", `{"decision":"approve","decision":"deny"}`, toolkeep.InvalidEncoding},
		{path, "application/json", `{"decision":"approve","parameters":{"n":1}}`, toolkeep.MalformedRequest},
		{path, "application/json", `{"decision":"approve","Digest":"d0"}`, toolkeep.MalformedRequest},
		{path, "application/json", `{"decision":"approve","digest":1}`, toolkeep.InvalidParameters},
		{path, "application/json", `{"reason":"none"}`, toolkeep.MissingParameter},
		{path, "application/json", `{"decision":"approve","reason":"a\u0000"}`, toolkeep.InvalidEncoding},
		{path, form, `decision=approve&parameters=1`, toolkeep.MalformedRequest},
		{path, form, `decision=approve&diggest=d0`, toolkeep.MalformedRequest},
		{path, form, `decision=deny&decision=approve`, toolkeep.InvalidEncoding},
		{path, form, `decision=approve&reason=a%00`, toolkeep.InvalidEncoding},
		{path, form, `decision=approve&reason=%ff`, toolkeep.InvalidEncoding},
		{path, form, `decision=approve&reason=%zz`, toolkeep.MalformedRequest},
		{path, "text/plain", `decision=approve`, toolkeep.MalformedRequest},
		{path, "application/json", `{"decision":"approve","reason":"` + strings.Repeat("x", maxDecision) + `"}`, toolkeep.RequestTooLarge},
	} {
		w := s.do(t, "POST", c.path, c.body, none, "Content-Type: "+c.kind)
		if p := problem(t, w, c.code); strings.Contains(p.Detail, linkToken) {
			t.Errorf("%s", p.Detail)
		}
	}
	problem(t, s.do(t, "POST", path, "decision=approve", none, "Content-Type: application/x-www-form-urlencoded", "Origin: https://other.example"), toolkeep.PermissionDenied)
	if f.decided != nil {
		t.Fatal("something was decided")
	}
	body := url.Values{"token": {linkToken}, "digest": {"d1"}, "reason": {"ok & fine"}, "decision": {"approve"}}.Encode()
	w = s.do(t, "POST", approvals.LinkPath, body, none, "Content-Type: application/x-www-form-urlencoded", "Accept: text/html")
	wantStatus(t, w, http.StatusOK)
	if v := f.decided; v == nil || !v.Approve || v.Digest != "d1" || v.Reason != "ok & fine" || !strings.Contains(w.Body.String(), "You approved") || strings.Contains(w.Body.String(), linkToken) {
		t.Errorf("%+v %s", v, w.Body)
	}
	w = s.do(t, "POST", path, `{"decision":"deny","reason":"no"}`, none, "Content-Type: application/json")
	wantStatus(t, w, http.StatusOK)
	if v := f.decided; v.Approve || v.Reason != "no" || !strings.Contains(w.Body.String(), `"invocation_id":"i1"`) {
		t.Errorf("%+v %s", v, w.Body)
	}
	if strings.Contains(s.log.String(), strings.TrimPrefix(linkToken, "tkd_")) {
		t.Errorf("the log has the token: %s", s.log.String())
	}
}
