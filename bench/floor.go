package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// startFloor starts bench itself as the floor of both faces.
func startFloor(self string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	rpc, err := freeAddr()
	if err != nil {
		return nil, err
	}
	p, err := launch(exec.Command(self, "-floor", addr, "-floor-grpc", rpc), "http://"+addr, "/health/live")
	if err != nil {
		return nil, err
	}
	p.grpc = rpc
	return p, nil
}

// serveFloor serves both floors. HTTP: a JSON body in, decoded, encoded, out.
func serveFloor(addr, rpc string) {
	l, err := net.Listen("tcp", rpc)
	if err != nil {
		fail(err)
	}
	server := grpc.NewServer()
	l03v1.RegisterToolExecutionServer(server, grpcFloor{})
	go func() { fail(server.Serve(l)) }()
	mux := http.NewServeMux()
	mux.HandleFunc("/health/live", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("POST /api/v1/tools/invoke", func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		if err := json.UnmarshalRead(r.Body, &v); err != nil {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, v)
	})
	srv := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fail(srv.ListenAndServe())
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// grpcFloor answers with the inputs and a receipt of the size of Toolkeep's.
type grpcFloor struct {
	l03v1.UnimplementedToolExecutionServer
}

var (
	floorID     = strings.Repeat("0", 36) // as long as a UUID
	floorCallID = "call_" + strings.Repeat("0", 32)
)

func (grpcFloor) InvokeTool(_ context.Context, m *l03v1.ToolInvocationRequest) (*l03v1.ToolInvocationResult, error) {
	now := time.Now()
	return &l03v1.ToolInvocationResult{
		RequestId: m.GetRequestId(), Outputs: m.GetInputs(), Version: 1, InvocationId: floorID, CallId: floorCallID,
		Metadata: &l03v1.ToolInvocationResult_ExecutionMetadata{ToolVersion: "1.0.0", OverheadUs: 200, TimestampMs: uint64(now.UnixMilli()),
			StartedAt: timestamppb.New(now), CompletedAt: timestamppb.New(now)},
	}, nil
}
