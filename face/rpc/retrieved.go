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
	// Retrieved records a search in the background and gives the id of its event at once.
	Retrieved(p *toolkeep.Principal, r usage.Retrieval) (id string)
}

// retrievalHeader carries the id by which feedback names a search.
const retrievalHeader = "x-retrieval-id"

// retrieved records a search that began at start and says its id in the header of the
// answer.
func (s *Server) retrieved(ctx context.Context, p *toolkeep.Principal, q discover.Query, found []discover.Match, r discover.Report, start time.Time) {
	if s.c.Retrievals == nil {
		return
	}
	one := usage.Of(q, found, r, time.Since(start))
	one.Face = "grpc"
	one.Agent = headersOf(ctx).Agent()
	// The header can be too late only if the answer went out, and it did not.
	_ = grpc.SetHeader(ctx, metadata.Pairs(retrievalHeader, s.c.Retrievals.Retrieved(p, one)))
}
