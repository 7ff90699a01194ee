package rpc

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// GetToolHealth returns how well a tool works. E3001, E3009, E3010.
func (g *registry) GetToolHealth(ctx context.Context, msg *l03v1.GetToolHealthRequest) (*l03v1.ToolHealthStatus, error) {
	p, err := g.s.admitPlain(ctx, msg)
	if err != nil {
		return nil, err
	}
	if g.s.c.ToolHealth == nil {
		return nil, status.Error(codes.Unimplemented, "this server does not know the health of tools")
	}
	if err := g.s.checkID(msg.GetToolId()); err != nil {
		return nil, err
	}
	v, _, err := g.s.c.Catalog.Describe(ctx, p, msg.GetToolId(), "", g.s.visible(p))
	if err != nil {
		return nil, err
	}
	h := g.s.c.ToolHealth(p, v.Tool)
	raw, err := json.Marshal(h.Metadata)
	metadata := &structpb.Struct{}
	if err == nil {
		err = protojson.Unmarshal(raw, metadata)
	}
	return &l03v1.ToolHealthStatus{ToolId: h.ToolID, Status: string(h.Status), LastCheckTime: stamp(h.LastCheck), ErrorRatePercent: h.ErrorRate,
		AverageLatencyMs: h.Latency, CircuitBreakerState: h.Breaker, Metadata: metadata}, err
}

// healthOf returns healthy, degraded or unhealthy; "" for a tool of which nothing is known.
func (g *registry) healthOf(p *toolkeep.Principal, t *toolkeep.Tool) string {
	if g.s.c.ToolHealth == nil {
		return ""
	}
	return g.s.c.ToolHealth(p, t).Status.Shown()
}
