package mcpserver

import (
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
)

// Retrievals records searches.
type Retrievals interface {
	// Retrieved records a search in the background and returns its event id at once.
	Retrieved(p *toolkeep.Principal, r usage.Retrieval) (id string)
}

// retrieved records a search that began at start and returns the id that feedback refers to, "" if
// searches are not recorded.
func (x *exchange) retrieved(q discover.Query, found []discover.Match, r discover.Report, start time.Time) string {
	if x.s.c.Retrievals == nil {
		return ""
	}
	return x.record(usage.Of(q, found, r, time.Since(start)))
}

// disclosed records a context as a search that returned the tools shown in full.
func (x *exchange) disclosed(r *assembly.Request, c *assembly.Context, start time.Time) string {
	if x.s.c.Retrievals == nil {
		return ""
	}
	return x.record(usage.OfContext(r, c, assembly.Asker{Session: x.session()}, time.Since(start)))
}

func (x *exchange) record(r usage.Retrieval) string {
	r.Face = "mcp"
	if v := x.header["User-Agent"]; len(v) > 0 {
		r.Agent = v[0]
	}
	return x.s.c.Retrievals.Retrieved(x.p, r)
}

// appendRetrieval adds the id of the search to _meta.
func appendRetrieval(dst []byte, id string) []byte {
	if id == "" {
		return dst
	}
	dst = canon.AppendString(append(dst, `,"_meta":{"toolkeep/retrieval_id":`...), id)
	return append(dst, '}')
}
