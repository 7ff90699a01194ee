package rpc_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// echo is the baseline: a gRPC server that returns the inputs.
type echo struct {
	l03v1.UnimplementedToolExecutionServer
}

func (echo) InvokeTool(_ context.Context, m *l03v1.ToolInvocationRequest) (*l03v1.ToolInvocationResult, error) {
	return &l03v1.ToolInvocationResult{RequestId: m.RequestId, Outputs: m.Inputs, Metadata: &l03v1.ToolInvocationResult_ExecutionMetadata{}}, nil
}

func request600() *l03v1.ToolInvocationRequest {
	return &l03v1.ToolInvocationRequest{ToolId: "std.echo", Inputs: map[string]string{
		"text": `"` + strings.Repeat("hello ", 90) + `"`, "n": "42"}}
}

func hammer(b *testing.B, addr, key string) {
	c := l03v1.NewToolExecutionClient(connect(b, addr))
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+key)
	msg := request600()
	if _, err := c.InvokeTool(ctx, msg); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.InvokeTool(ctx, msg); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkFloor measures client and server without Toolkeep.
func BenchmarkFloor(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	l03v1.RegisterToolExecutionServer(s, echo{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.Cleanup(func() { s.Stop(); <-done })
	hammer(b, l.Addr().String(), "none")
}

// BenchmarkInvokeTool is a reading call of a builtin tool through the whole pipeline: roles,
// schema, limits, a durable record, metrics, a log line.
func BenchmarkInvokeTool(b *testing.B) {
	k := toolkeeptest.New(b)
	hammer(b, k.GRPCAddr(), k.AdminKey)
}
