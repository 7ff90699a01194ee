package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/schema"
)

// Sessions is what Access does for browsers, which see.
type Sessions interface {
	BeginSession(ctx context.Context, p *toolkeep.Principal) (cookie, token string, s *toolkeep.ConsoleSession, err error)
	RedeemLink(ctx context.Context, text, addr string) (p *toolkeep.Principal, cookie, token string, err error)
	EndSession(ctx context.Context, p *toolkeep.Principal) error
	MakeLink(p *toolkeep.Principal) (text string, until time.Time, err error)
}

// Session names the schema in the document: who asks, and what the server has for it.
type Session struct {
	Subject     string          `json:"subject"`
	Tenant      string          `json:"tenant_id"`
	Roles       []string        `json:"roles"`
	Permissions []string        `json:"permissions" doc:"* is all"`
	KeyID       string          `json:"key_id,omitempty" doc:"of an API key"`
	Scope       []string        `json:"scope,omitempty" doc:"patterns on tool ids to which the key is narrowed"`
	Until       *time.Time      `json:"until,omitempty" doc:"when the session or credential ends"`
	IdleUntil   *time.Time      `json:"idle_until,omitempty" doc:"when the session ends without a further request"`
	Method      string          `json:"method" doc:"key or link, with which a session began; without a session bearer, oauth, mtls or proxy"`
	Version     string          `json:"version" doc:"of the program"`
	Node        string          `json:"node,omitempty" doc:"which answers"`
	Operator    bool            `json:"operator" doc:"operates the server for all tenants"`
	Parts       map[string]bool `json:"parts" doc:"which parts that can be left out the server has"`
}

func (a *API) sessionOf(p *toolkeep.Principal) Session {
	s := Session{Subject: p.Subject, Tenant: p.Tenant, Roles: list(p.Roles), Permissions: list(p.Permissions), KeyID: p.KeyID, Scope: p.Scope, Method: p.Method,
		Version: a.c.Version, Node: a.c.NodeName, Operator: p.Tenant == access.HomeTenant && p.May(toolkeep.PermOperate), Parts: map[string]bool{
			"analytics": a.c.Analytics != nil, "approvals": a.c.Approvals != nil, "audit": a.c.Audit != nil, "blobs": a.c.Blobs != nil, "breakers": a.c.Breakers != nil,
			"contexts": a.c.Contexts != nil, "keys": a.c.Keys != nil, "nodes": a.c.Nodes != nil, "policies": a.c.Policies != nil, "search": a.c.Search != nil,
			"secrets": a.c.Secrets != nil, "servers": a.c.Servers != nil, "sinks": a.c.Sinks != nil, "tokens": a.c.Tokens != nil,
		}}
	if p.KeyID != "" {
		s.Method = "bearer"
	}
	if !p.Until.IsZero() {
		s.Until = utc(p.Until)
	}
	if c := p.Console; c != nil {
		s.Method, s.Until, s.IdleUntil = c.Method, utc(c.Until), utc(c.IdleUntil)
	}
	return s
}

func utc(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

// list is a list that is not null in JSON.
func list(some []string) []string { return append([]string{}, some...) }

// Begun names the schema in the document.
type Begun struct {
	Token   string  `json:"csrf_token" doc:"to send as X-Toolkeep-CSRF with every request of the session; shown once"`
	Session Session `json:"session"`
}

type begunOutput struct {
	Cookie string `header:"Set-Cookie" doc:"the session's cookie; out of reach of scripts"`
	Body   Begun
}

// begun is the answer to a login.
func (a *API) begun(p *toolkeep.Principal, cookie, token string) *begunOutput {
	return &begunOutput{a.gate.SessionCookie(cookie, time.Until(p.Console.Until)), Begun{token, a.sessionOf(p)}}
}

func (a *API) beginSession(ctx context.Context, p *toolkeep.Principal, _ *struct{}) (*begunOutput, error) {
	cookie, token, s, err := a.c.Sessions.BeginSession(ctx, p)
	if err != nil {
		return nil, err
	}
	own := *p
	own.Console = s
	return a.begun(&own, cookie, token), nil
}

type sessionOutput struct{ Body Session }

func (a *API) getSession(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*sessionOutput, error) {
	return &sessionOutput{a.sessionOf(p)}, nil
}

type endedOutput struct {
	Cookie string `header:"Set-Cookie" doc:"takes the session's cookie away"`
}

func (a *API) endSession(ctx context.Context, p *toolkeep.Principal, _ *struct{}) (*endedOutput, error) {
	if err := a.c.Sessions.EndSession(ctx, p); err != nil {
		return nil, err
	}
	return &endedOutput{a.gate.SessionCookie("", 0)}, nil
}

type loginLinkOutput struct {
	Body struct {
		URL     string    `json:"url" doc:"logs a browser in, once; what stands behind # reaches no server, log or other site"`
		Expires time.Time `json:"expires_at"`
	} `nameHint:"LoginLink"`
}

func (a *API) makeLoginLink(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*loginLinkOutput, error) {
	text, until, err := a.c.Sessions.MakeLink(p)
	if err != nil {
		return nil, err
	}
	out := &loginLinkOutput{}
	out.Body.URL, out.Body.Expires = strings.TrimRight(a.c.BaseURL(), "/")+"/login#"+text, until.UTC()
	return out, nil
}

// redeemBody is the body of a redemption.
var redeemBody = tree{"type": "object", "additionalProperties": false, "required": []any{"token"},
	"properties": tree{"token": tree{"type": "string", "description": "what stands behind # in the link", "minLength": 1, "maxLength": 4096}}}

// maxRedeem is the largest body of a redemption, in bytes.
const maxRedeem = 8 << 10

// redeem begins a session by a login link; it has no caller but the one that the link names.
func (a *API) redeem(w http.ResponseWriter, r *http.Request, check *schema.Schema) {
	body, err := gate.ReadBody(r, maxRedeem, false)
	var sent map[string]any
	if err == nil {
		sent, err = canon.ParseObject(body, canon.Limits{Bytes: maxRedeem})
	}
	if err == nil {
		if faults := check.ValidateSecret(r.Context(), sent); len(faults) > 0 {
			err = badInput(faults)
		}
	}
	var p *toolkeep.Principal
	var cookie, token string
	if err == nil {
		p, cookie, token, err = a.c.Sessions.RedeemLink(r.Context(), textOf(sent["token"]), a.gate.Client(r))
	}
	var answer []byte
	if err == nil {
		out := a.begun(p, cookie, token)
		w.Header().Set("Set-Cookie", out.Cookie)
		answer, err = gate.Marshal(out.Body)
	}
	if err != nil {
		w.Header().Del("Set-Cookie")
		a.gate.Refuse(w, r, err)
		return
	}
	a.gate.Send(w, r, http.StatusCreated, gate.JSONType, answer)
}

// sessionRoutes are the routes of browsers' sessions.
func (a *API) sessionRoutes() {
	if a.c.Sessions == nil {
		return
	}
	op := func(method, path, id, summary string) route {
		return op(method, "/api/v1/session"+path, id, tagSession, summary)
	}
	begin := op("POST", "", "beginSession", "Log a browser in with an API key")
	begin.status = http.StatusCreated
	begin.description = "The session has the rights that the key has at each request, over REST alone, until it ends, `console.session` after this or `console.idle` after its last request; " +
		"it ends with the key, and with its rotation. Each of its requests has the cookie and the header `X-Toolkeep-CSRF`."
	register(a, begin, "", a.beginSession)
	register(a, op("GET", "", "getSession", "Read who you are, and what the server has for you"), "", a.getSession)
	end := op("DELETE", "", "endSession", "Log out: end the session on all nodes")
	end.free = true
	register(a, end, "", a.endSession)
	links := op("POST", "/links", "makeLoginLink", "Make a link that logs a browser in with your own API key, once, within ten minutes")
	links.status = http.StatusCreated
	register(a, links, "", a.makeLoginLink)

	redeem := op("POST", "/redeem", "redeemLoginLink", "Log a browser in with a login link")
	redeem.public = true
	redeem.body = tree{"required": true, "content": content(gate.JSONType, redeemBody)}
	redeem.responses = tree{"201": tree{"description": "logged in", "content": content(gate.JSONType, a.components.ref(Begun{})),
		"headers": tree{"Set-Cookie": headerDoc("the session's cookie; out of reach of scripts", text())}}}
	check := a.components.checker(redeemBody)
	a.raw(redeem, func(w http.ResponseWriter, r *http.Request) { a.redeem(w, r, check()) })
}
