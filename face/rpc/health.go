package rpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// health is the standard health service, open to all like the HTTP probes.
type health struct {
	healthpb.UnimplementedHealthServer
	s *Server
}

// healthServices are the service names that may be queried; "" is the server.
var healthServices = []string{"", l03v1.ToolExecution_ServiceDesc.ServiceName, l03v1.ToolRegistry_ServiceDesc.ServiceName}

func known(service string) bool { return slices.Contains(healthServices, service) }

func (h *health) now(ctx context.Context) healthpb.HealthCheckResponse_ServingStatus {
	if h.s.closing.Err() != nil || h.s.c.Ready != nil && !h.s.c.Ready(ctx) {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

func (h *health) Check(ctx context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !known(in.GetService()) {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthpb.HealthCheckResponse{Status: h.now(ctx)}, nil
}

func (h *health) List(ctx context.Context, _ *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	out := &healthpb.HealthListResponse{Statuses: map[string]*healthpb.HealthCheckResponse{}}
	now := h.now(ctx)
	for _, s := range healthServices {
		out.Statuses[s] = &healthpb.HealthCheckResponse{Status: now}
	}
	return out, nil
}

// Watch sends the status at once and whenever it changes.
func (h *health) Watch(in *healthpb.HealthCheckRequest, out grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx := out.Context()
	tick := time.NewTicker(h.s.c.healthEvery)
	defer tick.Stop()
	last := healthpb.HealthCheckResponse_UNKNOWN
	for {
		now := healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		if known(in.GetService()) {
			now = h.now(ctx)
		}
		if now != last {
			last = now
			if err := out.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-h.s.closing.Done():
			if last == healthpb.HealthCheckResponse_SERVING {
				_ = out.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING})
			}
			return status.Error(codes.Unavailable, "the server is shutting down")
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-tick.C:
		}
	}
}
