package rpc

import (
	"context"
	"net"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep"
)

// request is what one RPC brought beside its message.
type request struct {
	md        metadata.MD
	principal *toolkeep.Principal
}

// admit names the caller.
func (s *Server) admit(ctx context.Context) (*request, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	bearer, err := s.bearer(md)
	if err != nil {
		return nil, err
	}
	p, err := s.c.Auth.Authenticate(ctx, bearer, remote(ctx))
	if err != nil {
		return nil, err
	}
	return &request{md: md, principal: p}, nil
}

func (s *Server) bearer(md metadata.MD) (string, error) {
	hs := md["authorization"]
	if len(hs) == 0 {
		return "", nil
	}
	scheme, rest, ok := strings.Cut(hs[0], " ")
	if len(hs) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || len(rest) > s.limits.KeyBytes {
		return "", toolkeep.NewError(toolkeep.Unauthenticated, "send one metadata entry of the form authorization: Bearer <key>")
	}
	return strings.TrimSpace(rest), nil
}

// remote is the peer's address without its port.
func remote(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	addr := p.Addr.String()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// admitPlain is admit for what is not a call: a call's user and proofs are
// checked by the pipeline, which records the refusal.
func (s *Server) admitPlain(ctx context.Context, msg proto.Message) (*toolkeep.Principal, error) {
	r, err := s.admit(ctx)
	if err != nil {
		return nil, err
	}
	if err := undecoded(msg); err != nil {
		return nil, err
	}
	if err := unverifiable(r.md); err != nil {
		return nil, err
	}
	p := r.principal
	if user := first(r.md, "x-user-id"); user != "" && user != p.Subject && user != p.OnBehalf && !p.May(toolkeep.PermActAs) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "this needs the permission %s, which none of your roles grants", toolkeep.PermActAs).
			With("reason", "RBAC_DENIED").With("permission", toolkeep.PermActAs)
	}
	return p, nil
}

// unverifiable refuses proofs that this build cannot check; passing over them
// would let a call through that its sender meant to narrow.
func unverifiable(md metadata.MD) *toolkeep.Error {
	if md["x-request-signature"] != nil || md["x-request-timestamp"] != nil {
		return toolkeep.NewError(toolkeep.SignatureInvalid,
			"request signatures are not configured on this server; leave x-request-signature and x-request-timestamp out")
	}
	if md["x-capability-token"] != nil {
		return toolkeep.NewError(toolkeep.TokenInvalid,
			"capability tokens are not configured on this server, so the one that was sent cannot be verified; leave it out")
	}
	return nil
}

func first(md metadata.MD, key string) string {
	if vs := md[key]; len(vs) > 0 {
		return vs[0]
	}
	return ""
}

// harmless tells whether an id can stand in a log or a header as it is.
func harmless(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' || c == ':') {
			return false
		}
	}
	return true
}
