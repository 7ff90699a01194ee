package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// Field numbers of the two BC-6 messages.
const (
	requestIDField = 1 // of both
	statusField    = 2 // of the result
)

// grpcCalls measures InvokeTool over one connection that all clients share and
// over one for each.
func grpcCalls(b *bench) (part, error) {
	srv, err := b.server("grpc")
	if err != nil {
		return part{}, err
	}
	defer srv.stop()
	asked, answered, err := firstCall(srv)
	if err != nil {
		return part{}, err
	}
	_, floor, err := firstCall(b.floor)
	if err != nil {
		return part{}, err
	}
	p := part{set: fmt.Sprintf("Set: %d clients in a closed loop, limits off, SQLite with synchronous NORMAL, the floor as grpc-go and the Go runtime come. "+
		"A request has %d bytes, an answer %d (floor %d).", clients, asked, answered, floor)}
	for _, conns := range []int{1, clients} {
		name := "one shared connection"
		if conns > 1 {
			name = fmt.Sprintf("%d connections", conns)
		}
		var bottom measured
		for _, what := range []struct {
			name   string
			server *process
			keyed  bool
			goal   string
		}{
			{"floor", b.floor, false, "-"}, {"reading", srv, false, "floor + 50 µs"}, {"keyed", srv, true, "floor + 80 µs"},
		} {
			m, err := grpcLoop(what.server, conns, what.keyed, b.d)
			if err != nil {
				return part{}, fmt.Errorf("%s, %s: %w", what.name, name, err)
			}
			cpu := us(m.cpuPerCall())
			if what.server == b.floor {
				bottom = m
			} else {
				cpu += fmt.Sprintf(" (floor + %.0f)", m.cpuPerCall()-bottom.cpuPerCall())
			}
			p.rows = append(p.rows, []string{what.name + ", " + name, what.goal, cpu, rate(m), m.quantiles()})
		}
	}
	return p, nil
}

// echoRequest is the call of echoBody as a message.
func echoRequest() (*l03v1.ToolInvocationRequest, error) {
	m := &l03v1.ToolInvocationRequest{ToolId: "std.echo", Inputs: map[string]string{}}
	for name, v := range echoArguments() {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		m.Inputs[name] = string(raw)
	}
	return m, nil
}

// firstCall checks that the server echoes the inputs, and returns the sizes of the two messages.
func firstCall(p *process) (asked, answered int, err error) {
	conn, err := dialGRPC(p)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	req, err := echoRequest()
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(withKey(p), 10*time.Second)
	defer cancel()
	res, err := l03v1.NewToolExecutionClient(conn).InvokeTool(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	if got := res.GetOutputs()["message"]; res.GetStatus() != l03v1.ToolInvocationResult_SUCCESS || got != req.Inputs["message"] {
		return 0, 0, fmt.Errorf("std.echo answered %s %q", res.GetStatus(), got)
	}
	return proto.Size(req), proto.Size(res), nil
}

func dialGRPC(p *process) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
}

func withKey(p *process) context.Context {
	if p.key == "" {
		return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer none")
	}
	return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+p.key)
}

// grpcLoop loads a server over so many connections.
func grpcLoop(p *process, conns int, keyed bool, d time.Duration) (measured, error) {
	req, err := echoRequest()
	if err != nil {
		return measured{}, err
	}
	body, err := proto.Marshal(req)
	if err != nil {
		return measured{}, err
	}
	var open []*grpc.ClientConn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range conns {
		c, err := dialGRPC(p)
		if err != nil {
			return measured{}, err
		}
		open = append(open, c)
	}
	run := "key-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	ctx := withKey(p)
	return closedLoop(target{cpu: p.cpu, open: func(client int) (sender, error) {
		s := &grpcSender{ctx: ctx, conn: open[client%conns], body: body}
		if keyed {
			s.run = run
		}
		return s, nil
	}}, clients, d)
}

// grpcSender sends a message that was encoded once, so that the client does as
// little as it can.
type grpcSender struct {
	ctx  context.Context
	conn *grpc.ClientConn
	body []byte
	run  string // before the number in a key; "" sends none
}

var rawOptions = []grpc.CallOption{grpc.ForceCodecV2(rawCodec{}), grpc.StaticMethod()}

func (s *grpcSender) send(i int64) error {
	body := s.body
	if s.run != "" {
		// A field may stand anywhere in a message.
		body = protowire.AppendString(protowire.AppendTag(body[:len(body):len(body)], requestIDField, protowire.BytesType),
			s.run+strconv.FormatInt(i, 10))
	}
	var answer []byte
	if err := s.conn.Invoke(s.ctx, l03v1.ToolExecution_InvokeTool_FullMethodName, body, &answer, rawOptions...); err != nil {
		return err
	}
	return success(answer)
}

func (s *grpcSender) close() {}

// success looks at a result's status, which is SUCCESS where the field is absent.
// Fields are written by number, so it is among the first two.
func success(result []byte) error {
	for len(result) > 0 {
		num, kind, n := protowire.ConsumeTag(result)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if num > statusField {
			return nil
		}
		if num == statusField {
			v, _ := protowire.ConsumeVarint(result[n:])
			return fmt.Errorf("the call ended as %s", l03v1.ToolInvocationResult_Status(v))
		}
		size := protowire.ConsumeFieldValue(num, kind, result[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		result = result[n+size:]
	}
	return errors.New("the answer is empty")
}

// rawCodec passes bytes through.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T takes no message", v)
	}
	*to = data.Materialize()
	return nil
}
