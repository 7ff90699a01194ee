package mcpserver

import (
	"time"

	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/face/gate"
)

// retrieved records a search that began at start and returns the id that feedback refers to, "" if
// searches are not recorded.
func (x *exchange) retrieved(q discover.Query, found []discover.Match, r discover.Report, start time.Time) string {
	return x.record(usage.Of(q, found, r, time.Since(start)))
}

func (x *exchange) record(r usage.Retrieval) string {
	return usage.Record(x.s.c.Retrievals, x.p, r, "mcp", gate.HTTP(x.header).Agent())
}

// appendRetrieval adds the id of the search to _meta.
func appendRetrieval(dst []byte, id string) []byte {
	if id == "" {
		return dst
	}
	dst = canon.AppendString(append(dst, `,"_meta":{"toolkeep/retrieval_id":`...), id)
	return append(dst, '}')
}

// read tells the audit of a read.
func (x *exchange) read(r audit.Read) {
	r.Face, r.Session = "mcp", x.conversation()
	audit.Tell(x.s.c.Reads, x.p, r)
}
