package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/usage"
)

// Retrievals records searches.
type Retrievals interface {
	// Retrieved records a search in the background and returns its event id at once.
	Retrieved(p *toolkeep.Principal, r usage.Retrieval) (id string)
}

// retrievalHeader carries the search id that feedback refers to.
const retrievalHeader = "x-retrieval-id"

// retrieved records a search that began at start and puts its id into the answer's header.
func (s *Server) retrieved(ctx context.Context, p *toolkeep.Principal, q discover.Query, found []discover.Match, r discover.Report, start time.Time) {
	if s.c.Retrievals == nil {
		return
	}
	one := usage.Of(q, found, r, time.Since(start))
	one.Face = "grpc"
	one.Agent = headersOf(ctx).Agent()
	// SetHeader fails only after the answer was sent, and it was not.
	_ = grpc.SetHeader(ctx, metadata.Pairs(retrievalHeader, s.c.Retrievals.Retrieved(p, one)))
}
