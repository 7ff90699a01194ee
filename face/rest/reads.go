package rest

import (
	"cmp"
	"net/http"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/face/gate"
)

// reading returns the route of a read, of which the audit is told.
func reading(what string, r route) route {
	r.reads = what
	return r
}

// read tells of a read that was answered, or refused with err.
func (a *API) read(p *toolkeep.Principal, req *http.Request, what string, in, answer any, err error) {
	query := req.URL.Query()
	d := audit.Read{What: what, Tool: a.toolID(p, cmp.Or(req.PathValue("tool_id"), req.PathValue("toolId"))), Version: query.Get("version"),
		Query: cmp.Or(query.Get("q"), query.Get("capability_query")), Found: 1, Face: "rest", Session: gate.HTTP(req.Header).Session(), Err: err}
	if asks, ok := in.(interface{ question() string }); ok {
		d.Query = asks.question()
	}
	if many, ok := answer.(interface{ found() int }); ok && err == nil {
		d.Found = many.found()
	}
	audit.Tell(a.c.Reads, p, d)
}

func (o *listToolsOutput) found() int { return len(o.Body.Tools) }
func (o *exportOutput) found() int    { return len(o.Body.Names) }
func (o *versionsOutput) found() int  { return len(o.Body.Versions) }
func (o *relatedOutput) found() int   { return len(o.Body.Data.RelatedTools) }
