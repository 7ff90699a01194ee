package rpc

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
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
	r := &gate.Request{Headers: headersOf(ctx), Face: gate.GRPC, Method: http.MethodPost, Body: func() ([sha256.Size]byte, error) { return digest(ctx) }}
	r.Target, _ = grpc.Method(ctx)
	r.Peer, r.TLS = remote(ctx)
	p, err := s.gate.Authenticate(ctx, r)
	return &request{headers: r.Headers, principal: p}, err
}

// remote returns the peer's address without its port, and its TLS connection, nil without TLS.
func remote(ctx context.Context) (string, *tls.ConnectionState) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", nil
	}
	var over *tls.ConnectionState
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		over = &info.State
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return tcp.IP.String(), over
	}
	return gate.Address(p.Addr.String()), over
}

// admitPlain is admit for requests other than calls. They count against the agent's limits.
func (s *Server) admitPlain(ctx context.Context, msg proto.Message) (*toolkeep.Principal, error) {
	p, err := s.admitFollowing(ctx, msg)
	if err == nil {
		var left toolkeep.RateLeft
		left, err = s.gate.Count(ctx, p)
		tellRate(ctx, left)
	}
	return p, err
}

// tellRate tells in the header what the limits have left.
func tellRate(ctx context.Context, left toolkeep.RateLeft) {
	if md := gate.RateMetadata(left); md != nil {
		_ = grpc.SetHeader(ctx, md) // fails only if the answer has begun
	}
}

// admitFollowing is admit for what follows a call, which was counted when it was made.
func (s *Server) admitFollowing(ctx context.Context, msg proto.Message) (*toolkeep.Principal, error) {
	r, err := s.admit(ctx)
	if err != nil {
		return nil, err
	}
	if err := undecoded(msg); err != nil {
		return nil, err
	}
	return s.gate.Acting(r.headers, r.principal)
}
