package rpc

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/usage"
)

// Retrievals records searches and feedback on them.
type Retrievals interface {
	usage.Recorder
	// Feedback records the principal's feedback on one of its own searches; again is true
	// if the same was given before. E3013.
	Feedback(ctx context.Context, p *toolkeep.Principal, f usage.Feedback) (id string, again bool, err error)
}

// retrievalHeader carries the search id that feedback refers to.
const retrievalHeader = "x-retrieval-id"

// retrieved records a search that began at start and returns its id, which the answer's header has too.
func (s *Server) retrieved(ctx context.Context, p *toolkeep.Principal, q discover.Query, found []discover.Match, r discover.Report, start time.Time) string {
	id := s.record(ctx, p, usage.Of(q, found, r, time.Since(start)))
	if id != "" {
		// SetHeader fails only after the answer was sent, and it was not.
		_ = grpc.SetHeader(ctx, metadata.Pairs(retrievalHeader, id))
	}
	return id
}

func (s *Server) record(ctx context.Context, p *toolkeep.Principal, r usage.Retrieval) string {
	return usage.Record(s.c.Retrievals, p, r, "grpc", headersOf(ctx).Agent())
}

// read tells the audit of a read.
func (s *Server) read(ctx context.Context, p *toolkeep.Principal, r audit.Read) {
	r.Face, r.Session = "grpc", cmp.Or(r.Session, headersOf(ctx).Session())
	audit.Tell(s.c.Reads, p, r)
}
