package grpctool

import (
	"encoding/base64"
	"net"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/executortest"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
	"github.com/toolkeep/toolkeep/servertest"
)

// closedPort returns an address without a listener.
func closedPort(t testing.TB) string {
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// noise starts a server that answers every connection with bytes that are not HTTP/2.
func noise(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("nonsense\r\n"))
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// renamed returns the descriptors of Count under a name that the server lacks.
func renamed(t testing.TB, ts tools) string {
	tree, err := canon.ParseObject(ts["Kinds_Count"].Execution.Binding, canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(tree["descriptors"].(string))
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}
	for _, f := range set.File {
		for _, s := range f.Service {
			s.Method[0].Name = proto.String("Gone")
		}
	}
	if raw, err = proto.Marshal(&set); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

func TestConformance(t *testing.T) {
	executortest.Run(t, func(t *testing.T) executortest.Harness {
		started, stopped := make(chan struct{}, 10), make(chan struct{}, 10)
		s := grpctest.Start(t, grpctest.Options{Started: started, Stopped: stopped})
		ts := importTools(t, s)
		call := func(name, tool string, code toolkeep.Code, text string, members map[string]any, edit ...func(*toolkeep.Manifest)) *executortest.Case {
			return &executortest.Case{Name: name, Tool: executortest.Tool(ts.with(t, tool, members, edit...)), Code: code, Args: args(t, text)}
		}
		with := func(c *executortest.Case, spec toolkeep.AuthSpec, secret string) *executortest.Case {
			c.Credentials = []toolkeep.Credential{{Spec: spec, Value: secret}}
			return c
		}
		forbidden := func(m *toolkeep.Manifest) { m.Permissions = nil }
		status := func(name string, c codes.Code, code toolkeep.Code) *executortest.Case {
			return call(name, "Kinds_Fail", code, `{"code":`+number(int(c)).String()+`,"message":"why"}`, nil)
		}
		bad := func(name, pointer string, members map[string]any, edit ...func(*toolkeep.Manifest)) executortest.Bad {
			return executortest.Bad{Name: name, Pointer: pointer, Manifest: ts.with(t, "Kinds_Count", members, edit...)}
		}
		auth := func(specs ...toolkeep.AuthSpec) func(*toolkeep.Manifest) {
			return func(m *toolkeep.Manifest) { m.Auth = specs }
		}
		slow := call("slow", "Kinds_Slow", "", `{}`, nil)
		slow.Started, slow.Stopped = started, stopped
		const secret = "s3cr3t/with+\"quotes\"&more"
		bearer, key := toolkeep.AuthSpec{Type: "bearer"}, toolkeep.AuthSpec{Type: "api_key", Name: "X-Key"}
		return executortest.Harness{
			Executor: newExecutor(t), Kind: "grpc",
			Good: ts["v1_Kinds_Echo"],
			Bad: []executortest.Bad{
				bad("target", "/execution/binding/target", map[string]any{"target": "host"}),
				bad("target with a path", "/execution/binding/target", map[string]any{"target": "host/x:1"}),
				bad("target with a space", "/execution/binding/target", map[string]any{"target": "ho st:1"}),
				bad("no target", "/execution/binding/target", map[string]any{"target": nil}),
				bad("method", "/execution/binding/method", map[string]any{"method": "acme.kinds.v1.Kinds/None"}),
				bad("service", "/execution/binding/method", map[string]any{"method": "acme.kinds.v1.Number/Count"}),
				bad("descriptors", "/execution/binding/descriptors", map[string]any{"descriptors": "!"}),
				bad("no descriptors", "/execution/binding/descriptors", map[string]any{"descriptors": "Zm9v"}),
				bad("unknown member", "/execution/binding/template", map[string]any{"template": true}),
				bad("metadata", "/execution/binding/metadata/grpc-timeout", map[string]any{"metadata": map[string]any{"grpc-timeout": "1S"}}),
				bad("metadata value", "/execution/binding/metadata/x", map[string]any{"metadata": map[string]any{"x": "a\nb"}}),
				bad("ca", "/execution/binding/tls/ca", map[string]any{"plaintext": nil, "tls": map[string]any{"ca": "text"}}),
				bad("both", "/execution/binding/tls", map[string]any{"tls": map[string]any{}}),
				bad("frames", "/execution/binding/max_frames", map[string]any{"max_frames": number(0)}),
				bad("deadline", "/execution/binding/deadline_ms", map[string]any{"deadline_ms": "soon"}),
				bad("query", "/auth/0/in", nil, auth(toolkeep.AuthSpec{Type: "api_key", Name: "k", In: "query"})),
				bad("environment", "/auth/1/in", nil, auth(bearer, toolkeep.AuthSpec{Type: "api_key", Name: "k", In: "env"})),
				bad("mtls without TLS", "/auth/0/type", nil, auth(toolkeep.AuthSpec{Type: "mtls"})),
				bad("sigv4", "/auth/0/type", nil, auth(toolkeep.AuthSpec{Type: "aws_sigv4"})),
				bad("key without name", "/auth/0/name", nil, auth(toolkeep.AuthSpec{Type: "api_key"})),
				bad("also", "/auth/0/settings/also/0/type", nil, auth(toolkeep.AuthSpec{Type: "bearer", Settings: map[string]any{"also": []any{map[string]any{"type": "aws_sigv4"}}}})),
			},
			Works: call("works", "v1_Kinds_Echo", "", `{"aString":"text","longs":[1,"2"],"byName":{"a":{"n":9007199254740993}},"struct":{"list":[1,null,{"x":true}]}}`, nil),
			Slow:  slow,
			Large: call("large", "Kinds_Large", "", `{"to":5000}`, nil),
			Lacks: map[string]string{"Counted": "an answer of one message is counted when it is there; of streams, TestMemoryForResults"},
			Unsent: []*executortest.Case{
				call("connection refused", "Kinds_Count", toolkeep.NetworkError, `{"to":1}`, map[string]any{"target": closedPort(t)}),
				call("no such name", "Kinds_Count", toolkeep.NetworkError, `{"to":1}`, map[string]any{"target": "no-such-host.invalid:1"}),
				call("forbidden", "Kinds_Count", toolkeep.DestinationForbidden, `{"to":1}`, nil, forbidden),
				call("no TLS there", "Kinds_Count", toolkeep.TLSError, `{"to":1}`, map[string]any{"plaintext": nil}),
				call("no HTTP/2 there", "Kinds_Count", toolkeep.NetworkError, `{"to":1}`, map[string]any{"target": noise(t)}),
				call("argument", "Kinds_Count", toolkeep.InvalidParameters, `{"to":"many"}`, nil),
				call("unknown argument", "Kinds_Count", toolkeep.InvalidParameters, `{"from":1}`, nil),
				with(call("secret", "Kinds_Count", toolkeep.SecretAccessDenied, `{"to":1}`, nil), bearer, "line\nbreak"),
				with(call("no user and password", "Kinds_Count", toolkeep.SecretAccessDenied, `{"to":1}`, nil), toolkeep.AuthSpec{Type: "basic"}, "user"),
			},
			Sent: []*executortest.Case{
				status("invalid argument", codes.InvalidArgument, toolkeep.GRPCError),
				status("unavailable", codes.Unavailable, toolkeep.GRPCError),
				status("unauthenticated", codes.Unauthenticated, toolkeep.SecretAccessDenied),
				status("exhausted", codes.ResourceExhausted, toolkeep.RateLimitExceeded),
				call("late", "Kinds_FailLate", toolkeep.GRPCError, `{"code":13}`, nil),
				call("unimplemented", "Kinds_Count", toolkeep.GRPCError, `{"to":1}`, map[string]any{"method": "acme.kinds.v1.Kinds/Gone", "descriptors": renamed(t, ts)}),
			},
			Retryable: []*executortest.Case{
				status("unavailable", codes.Unavailable, toolkeep.GRPCError),
				status("exhausted", codes.ResourceExhausted, toolkeep.RateLimitExceeded),
				status("deadline", codes.DeadlineExceeded, toolkeep.UpstreamTimeout),
				call("connection refused", "Kinds_Count", toolkeep.NetworkError, `{"to":1}`, map[string]any{"target": closedPort(t)}),
			},
			Permanent: []*executortest.Case{
				status("invalid argument", codes.InvalidArgument, toolkeep.GRPCError),
				status("aborted", codes.Aborted, toolkeep.GRPCError),
				status("internal", codes.Internal, toolkeep.GRPCError),
				status("permission denied", codes.PermissionDenied, toolkeep.SecretAccessDenied),
			},
			Malformed: []*executortest.Case{
				call("no message", "Kinds_Broken", toolkeep.InvalidResponse, `{}`, nil),
				call("nothing", "Kinds_Nothing", toolkeep.InvalidResponse, `{}`, nil),
				call("a year over 9999", "Kinds_Day", toolkeep.InvalidResponse, `{"value":"`+strings.Repeat("x", 3_000_000)+`"}`, nil),
			},
			Leaky: []*executortest.Case{
				with(call("a status", "Kinds_Fail", toolkeep.GRPCError, `{"code":13,"message":"was: ","tell":true}`, nil), bearer, secret),
				with(call("a key", "Kinds_Fail", toolkeep.SecretAccessDenied, `{"code":16,"message":"was: ","tell":true,"details":[{"@type":"t/google.rpc.ErrorInfo","reason":"`+`s3cr3t/with+\"quotes\"&more`+`"}]}`, nil), key, secret),
				with(call("basic", "Kinds_Fail", toolkeep.RateLimitExceeded, `{"code":8,"message":"was: ","tell":true}`, nil), toolkeep.AuthSpec{Type: "basic"}, "user:"+secret),
				with(call("a token", "Kinds_FailLate", toolkeep.GRPCError, `{"code":14,"message":"was: ","tell":true}`, nil), toolkeep.AuthSpec{Type: "azure_ad"}, secret),
				with(call("a broken message", "Kinds_Broken", toolkeep.InvalidResponse, `{}`, nil), bearer, secret),
				with(call("no server", "Kinds_Fail", toolkeep.NetworkError, `{"code":8}`, map[string]any{"target": closedPort(t)}), bearer, secret),
			},
			Told: []*executortest.Case{
				with(call("bearer", "Kinds_Meta", "", `{}`, nil), bearer, secret),
				with(call("key", "Kinds_Meta", "", `{}`, nil), key, secret),
				with(call("basic", "Kinds_Meta", "", `{}`, nil), toolkeep.AuthSpec{Type: "basic"}, "user:"+secret),
			},
		}
	})
}
