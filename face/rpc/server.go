package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // of requests and their answers
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// Server is the face. Serve it, and end it with Stop.
type Server struct {
	c      Config
	gate   *gate.Gate
	limits gate.Limits
	log    *slog.Logger
	failed *slog.Logger    // see gate.Failed
	guide  *assembly.Guide // nil without a search
	grpc   *grpc.Server

	closing   context.Context // ends the streams that only watch
	close     context.CancelFunc
	requests  context.Context // ends every request
	interrupt context.CancelFunc

	signed atomic.Int64 // requests under way with a signature
}

// New builds the services. It panics if a required part is missing, which is a wiring error.
func New(c Config) *Server {
	if c.Gate == nil || c.Invoker == nil || c.Calls == nil || c.Catalog == nil || c.Visible == nil || c.Callable == nil {
		panic("rpc: Gate, Invoker, Calls, Catalog, Visible and Callable are required")
	}
	s := &Server{c: c, gate: c.Gate, limits: c.Gate.Limits(), log: c.Log}
	if s.guide = c.Guide; s.guide == nil && c.Search != nil {
		s.guide = &assembly.Guide{Search: c.Search}
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.failed = gate.Failed(s.log)
	gate.Default(&s.c.healthEvery, time.Second)
	s.closing, s.close = context.WithCancel(context.Background())
	s.requests, s.interrupt = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(s.options()...)
	l03v1.RegisterToolExecutionServer(s.grpc, &execution{s: s})
	l03v1.RegisterToolRegistryServer(s.grpc, &registry{s: s})
	l03v1.RegisterToolRetrievalServer(s.grpc, &retrieval{s: s})
	healthpb.RegisterHealthServer(s.grpc, &health{s: s})
	reflection.Register(s.grpc) // v1 and v1alpha
	return s
}

// streamWorkers is the number of pooled goroutines for requests; further requests get their own. A
// call has a deep stack, and a new goroutine copies its stack at each doubling: about a tenth of a
// reading call.
const streamWorkers = 64

func (s *Server) options() []grpc.ServerOption {
	l := s.limits
	options := []grpc.ServerOption{
		// Messages a little over the limit are read, so that the refusal has a code and a record;
		// the library refuses larger ones.
		grpc.MaxRecvMsgSize(int(2 * l.BodyBytes)),
		grpc.MaxHeaderListSize(uint32(l.HeaderBytes)),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.InTapHandle(s.await),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: connectionIdle, Time: pingTime, Timeout: pingWait}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery, PermitWithoutStream: true}),
		grpc.ForceServerCodecV2(newCodec(&s.signed)),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
	}
	if s.c.TLS != nil {
		own := s.c.TLS.Clone()
		own.NextProtos = []string{"h2"}
		options = append(options, grpc.Creds(credentials.NewTLS(own)))
	}
	return options
}

// Serve answers on the listener until Stop; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Close ends the streams that only watch; requests are still answered.
func (s *Server) Close() { s.close() }

// Interrupt cancels running requests; they may still answer.
func (s *Server) Interrupt() { s.interrupt() }

// Stop takes no new requests and waits for running ones. When ctx ends it cuts them off, waits for
// their handlers and returns ctx's error. It may be called twice.
func (s *Server) Stop(ctx context.Context) error {
	s.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
		s.interrupt()
		s.grpc.Stop()
		<-done
	}
	s.interrupt()
	return err
}
