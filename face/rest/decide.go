package rest

import (
	"bytes"
	"context"
	"html/template"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/control/approvals"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/schema"
)

type makeLinkInput struct {
	approvalID
	Body *struct {
		Approver  string    `json:"approver,omitempty" maxLength:"4096" doc:"for whom the link is: a subject whose API key may decide; without it, you"`
		ExpiresAt time.Time `json:"expires_at,omitzero" doc:"when it ends; without it, with the call's deadline, which is the latest"`
	} `nameHint:"DecisionLinkRequest"`
}

type makeLinkOutput struct{ Body approvals.DecisionLink }

func (a *API) makeLink(ctx context.Context, p *toolkeep.Principal, in *makeLinkInput) (*makeLinkOutput, error) {
	var approver string
	var until time.Time
	if b := in.Body; b != nil {
		approver, until = b.Approver, b.ExpiresAt
	}
	l, err := a.c.Approvals.MakeLink(ctx, p, in.ID, approver, until)
	if err != nil {
		return nil, err
	}
	return &makeLinkOutput{*l}, nil
}

// LinkedApproval is what a decision link decides about.
type LinkedApproval struct {
	Approval      ApprovalRequest `json:"approval"`
	LinkExpiresAt time.Time       `json:"link_expires_at"`
}

// maxDecision bounds the body that decides by a link, in bytes: a reason, each byte of it as three.
const maxDecision = 16 << 10

// linkPage shows what a link decides about. It changes nothing, so that what follows links in messages by itself
// decides nothing.
func (a *API) linkPage(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	one, until, err := a.c.Approvals.ByLink(r.Context(), token)
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	v := decisionPage{Title: "A call waits for your decision", One: one, Until: until.Format(time.RFC1123)}
	if one.YouDecide {
		v.Token = token
	}
	a.showDecision(w, r, &LinkedApproval{ApprovalRequest(one), until}, v)
}

// decideByLink decides by a link: a form of the page, or JSON. check has decisionBody.
func (a *API) decideByLink(w http.ResponseWriter, r *http.Request, check *schema.Schema) {
	token, v, err := readDecision(w, r, check)
	var one approvals.Approval
	if err == nil {
		one, err = a.c.Approvals.DecideByLink(r.Context(), token, v)
	}
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	title := "You denied the call"
	if v.Approve {
		title = "You approved the call"
	}
	a.showDecision(w, r, ApprovalRequest(one), decisionPage{Title: title, One: one})
}

// decisionBody is what decides by a link. A member beside these, such as other arguments, is refused: the decision would
// not be what its sender means.
var decisionBody = tree{"type": "object", "additionalProperties": false, "required": []any{"decision"}, "properties": tree{
	"token": text(), "decision": tree{"type": "string", "enum": []any{"approve", "deny"}}, "reason": text(), "digest": text()}}

// readDecision reads the token, from the body or the query, and what is decided. check has decisionBody.
func readDecision(w http.ResponseWriter, r *http.Request, check *schema.Schema) (token string, v approvals.Verdict, err error) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDecision))
	if err != nil {
		return "", v, toolkeep.NewError(toolkeep.RequestTooLarge, "the decision cannot be read, or has more than %d bytes", maxDecision)
	}
	var m map[string]any
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(raw))
		if err != nil {
			return "", v, toolkeep.NewError(toolkeep.MalformedRequest, "the form cannot be read")
		}
		if err := checkValues(form, "field of the form"); err != nil {
			return "", v, err
		}
		m = map[string]any{}
		for name := range form {
			m[name] = form.Get(name)
		}
	case gate.JSONType:
		if m, err = canon.ParseObject(raw, canon.Limits{Bytes: maxDecision}); err != nil {
			return "", v, err
		}
	default:
		return "", v, toolkeep.NewError(toolkeep.MalformedRequest, "send the decision as application/json, or as the form of the page")
	}
	if faults := check.ValidateSecret(r.Context(), m); len(faults) > 0 {
		return "", v, badInput(faults)
	}
	if token = textOf(m["token"]); token == "" {
		token = r.URL.Query().Get("token")
	}
	v.Approve, v.Reason, v.Digest = m["decision"] == "approve", textOf(m["reason"]), textOf(m["digest"])
	return token, v, nil
}

type decisionPage struct {
	Title, Token, Until, Parameters string
	One                             approvals.Approval
}

var decisionHTML = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Toolkeep</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em}
dl{display:grid;grid-template-columns:auto 1fr;gap:.3em 1em}dt{opacity:.7}dd{margin:0;overflow-wrap:anywhere;white-space:pre-wrap}
textarea{width:100%;font:inherit}button{font:inherit;padding:.5em 1.2em}</style></head>
<body><h1>{{.Title}}</h1>
<dl><dt>Tool</dt><dd>{{.One.ToolID}}@{{.One.ToolVersion}}</dd><dt>Agent</dt><dd>{{.One.AgentID}}</dd>
{{with .One.UserID}}<dt>For</dt><dd>{{.}}</dd>{{end}}<dt>Why</dt><dd>{{.One.Why}}</dd><dt>State</dt><dd>{{.One.State}}, {{.One.Have}} of {{.One.Needed}} approvals</dd>
{{with .Parameters}}<dt>Arguments</dt><dd>{{.}}</dd>{{end}}{{with .Until}}<dt>This link ends</dt><dd>{{.}}</dd>{{end}}</dl>
{{if .Token}}<form method="post" action="decide"><input type="hidden" name="token" value="{{.Token}}"><input type="hidden" name="digest" value="{{.One.Digest}}">
<p><label>Reason<br><textarea name="reason" rows="3" maxlength="1000"></textarea></label></p>
<p><button name="decision" value="approve">Approve</button> <button name="decision" value="deny">Deny</button></p></form>
{{end}}</body></html>
`))

// showDecision answers with the page for browsers, and with JSON for others. The page loads and runs nothing and cannot
// be framed; its address, which has the token, is told to no other site.
func (a *API) showDecision(w http.ResponseWriter, r *http.Request, v any, page decisionPage) {
	h := w.Header()
	h.Set("Referrer-Policy", "same-origin")
	var out bytes.Buffer
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		raw, err := gate.Marshal(v)
		if err != nil {
			a.gate.Refuse(w, r, err)
			return
		}
		a.gate.Send(w, r, http.StatusOK, gate.JSONType, raw)
		return
	}
	if page.One.Parameters != nil {
		raw, err := gate.Marshal(page.One.Parameters)
		if err != nil {
			a.gate.Refuse(w, r, err)
			return
		}
		page.Parameters = string(raw)
	}
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Frame-Options", "DENY")
	if err := decisionHTML.Execute(&out, page); err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	a.gate.Send(w, r, http.StatusOK, "text/html; charset=utf-8", out.Bytes())
}

// linkRoutes are those of decision links. Who has a link's token needs no other credential.
func (a *API) linkRoutes() {
	link := op("POST", "/api/v1/approvals/{invocation_id}/links", "makeDecisionLink", tagCalls, "Make a link by which an approver decides once")
	link.status, link.spares = http.StatusCreated, toolkeep.PermApprove
	register(a, link, "", a.makeLink)

	token := paramDoc("query", "token", "of the link", false, text())
	html := tree{"schema": text()}
	show := op("GET", approvals.LinkPath, "showDecisionLink", tagCalls, "Show what a link decides about; it changes nothing")
	show.public, show.params = true, []tree{token}
	show.responses = tree{"200": tree{"description": "what waits; a page for clients that accept text/html",
		"content": tree{gate.JSONType: tree{"schema": a.components.ref(LinkedApproval{})}, "text/html": html}}}
	a.raw(show, a.linkPage)
	decide := op("POST", approvals.LinkPath, "decideByLink", tagCalls, "Decide by a link, which ends with it")
	decide.public, decide.params = true, []tree{token}
	body := tree{"schema": decisionBody}
	decide.body = tree{"required": true, "content": tree{gate.JSONType: body, "application/x-www-form-urlencoded": body}}
	decide.responses = tree{"200": tree{"description": "what was decided",
		"content": tree{gate.JSONType: tree{"schema": a.components.ref(ApprovalRequest{})}, "text/html": html}}}
	check := a.components.checker(decisionBody)
	a.raw(decide, func(w http.ResponseWriter, r *http.Request) { a.decideByLink(w, r, check()) })
}
