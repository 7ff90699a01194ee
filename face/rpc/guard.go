package rpc

import (
	"context"
	"net"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

// request is what one RPC carries besides its message.
type request struct {
	headers   gate.Headers
	principal *toolkeep.Principal
}

func headersOf(ctx context.Context) gate.Headers {
	md, _ := metadata.FromIncomingContext(ctx)
	return gate.Metadata(md)
}

// admit authenticates the caller.
func (s *Server) admit(ctx context.Context) (*request, error) {
	h := headersOf(ctx)
	p, err := s.gate.Authenticate(ctx, h, remote(ctx))
	return &request{headers: h, principal: p}, err
}

// remote returns the peer's address without its port.
func remote(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return gate.Address(p.Addr.String())
}

// admitPlain is admit for requests other than calls.
func (s *Server) admitPlain(ctx context.Context, msg proto.Message) (*toolkeep.Principal, error) {
	r, err := s.admit(ctx)
	if err != nil {
		return nil, err
	}
	if err := undecoded(msg); err != nil {
		return nil, err
	}
	return s.gate.Acting(r.headers, r.principal)
}
