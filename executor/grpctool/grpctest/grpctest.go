// Package grpctest runs a gRPC server for tests: real grpc-go with reflection, whose
// services come from .proto files without generated code. It has a method of every kind
// and a field of every type.
package grpctest

import (
	"context"
	"crypto/tls"
	"embed"
	"fmt"
	"io"
	"net"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
)

//go:embed *.proto
var protos embed.FS

// names of the files, below Dir for programs that read them.
var names = map[string]string{"acme/kinds.proto": "kinds.proto", "acme/shared.proto": "shared.proto", "acme/legacy.proto": "legacy.proto", "acme/modern.proto": "modern.proto"}

// Sources returns the .proto files by their import names.
func Sources() map[string]string {
	out := make(map[string]string, len(names))
	for name, own := range names {
		text, err := protos.ReadFile(own)
		if err != nil {
			panic(err)
		}
		out[name] = string(text)
	}
	return out
}

// Options configure the server. The zero value serves plaintext and both versions of
// reflection.
type Options struct {
	TLS *tls.Config
	// Reflection is "", "v1", "v1alpha" or "none".
	Reflection string
	// Reflector replaces the library's v1 reflection.
	Reflector reflectionv1.ServerReflectionServer
	// Started and Stopped receive a value when Slow or Forever begins and is cancelled.
	Started, Stopped chan<- struct{}
	// Refuse is called before each call except reflection; its error ends the call.
	Refuse func(metadata.MD) error
}

// Server is a running server.
type Server struct {
	Addr  string
	Files *protoregistry.Files
	// Set is the FileDescriptorSet with comments.
	Set []byte

	server *grpc.Server
	o      Options
	mu     sync.Mutex
	last   metadata.MD
	calls  int
	conns  int
	open   int
}

// compile links the files.
var compile = sync.OnceValues(func() (*descriptorpb.FileDescriptorSet, error) {
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(Sources())}),
		SourceInfoMode: protocompile.SourceInfoStandard}
	linked, err := c.Compile(context.Background(), "acme/kinds.proto", "acme/legacy.proto", "acme/modern.proto")
	if err != nil {
		return nil, err
	}
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		if own, ok := f.(interface {
			FileDescriptorProto() *descriptorpb.FileDescriptorProto
		}); ok {
			set.File = append(set.File, own.FileDescriptorProto())
		} else {
			set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
		}
	}
	for _, f := range linked {
		add(f)
	}
	return set, nil
})

// Set is the FileDescriptorSet of all services, with comments.
func Set() (*descriptorpb.FileDescriptorSet, error) { return compile() }

// Start runs a server until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Serve(t, l, o)
}

// Serve is Start on the given listener.
func Serve(t testing.TB, l net.Listener, o Options) *Server {
	t.Helper()
	set, err := compile()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: l.Addr().String(), o: o}
	if s.Set, err = proto.Marshal(set); err != nil {
		t.Fatal(err)
	}
	if s.Files, err = protodesc.NewFiles(set); err != nil {
		t.Fatal(err)
	}
	options := []grpc.ServerOption{grpc.ForceServerCodecV2(codec{})}
	if o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	s.server = grpc.NewServer(options...)
	s.Files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s.register(f.Services().Get(i))
		}
		return true
	})
	how := reflection.ServerOptions{Services: s.server, DescriptorResolver: s.Files, ExtensionResolver: new(protoregistry.Types)}
	if o.Reflector != nil {
		reflectionv1.RegisterServerReflectionServer(s.server, o.Reflector)
	} else if o.Reflection == "" || o.Reflection == "v1" {
		reflectionv1.RegisterServerReflectionServer(s.server, reflection.NewServerV1(how))
	}
	if o.Reflection == "" && o.Reflector == nil || o.Reflection == "v1alpha" {
		reflectionv1alpha.RegisterServerReflectionServer(s.server, reflection.NewServer(how))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.server.Serve(counted{l, s})
	}()
	t.Cleanup(func() {
		s.server.Stop()
		<-done
	})
	return s
}

// Stop ends the server and its calls at once.
func (s *Server) Stop() { s.server.Stop() }

// Metadata returns the last call's metadata and the number of calls.
func (s *Server) Metadata() (metadata.MD, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Copy(), s.calls
}

// Conns returns the number of accepted connections.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Open returns the number of open connections.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

type counted struct {
	net.Listener
	s *Server
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.conns++
	c.s.open++
	return &countedConn{Conn: conn, s: c.s}, nil
}

type countedConn struct {
	net.Conn
	s    *Server
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.s.mu.Lock()
		c.s.open--
		c.s.mu.Unlock()
	})
	return c.Conn.Close()
}

func (s *Server) register(d protoreflect.ServiceDescriptor) {
	desc := &grpc.ServiceDesc{ServiceName: string(d.FullName()), Metadata: d.ParentFile().Path()}
	for i := range d.Methods().Len() {
		m := d.Methods().Get(i)
		desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: string(m.Name()), ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return s.handle(m, stream) }})
	}
	s.server.RegisterService(desc, nil)
}

// raw is a response sent as is.
type raw []byte

// codec encodes and decodes dynamic messages and raw bytes.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(r)}, nil
	}
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

type call struct {
	*Server
	d      protoreflect.MethodDescriptor
	stream grpc.ServerStream
	md     metadata.MD
}

func (s *Server) handle(d protoreflect.MethodDescriptor, stream grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	s.mu.Lock()
	s.last = md.Copy()
	s.calls++
	s.mu.Unlock()
	if s.o.Refuse != nil {
		if err := s.o.Refuse(md); err != nil {
			return err
		}
	}
	c := &call{s, d, stream, md}
	switch d.Name() {
	case "Sum":
		return c.sum()
	case "Chat":
		return c.chat()
	}
	if n, err := strconv.Atoi(strings.Join(md["x-header-bytes"], "")); err == nil {
		// Send that many bytes of metadata before the response.
		if err := stream.SendHeader(metadata.Pairs("x-long", strings.Repeat("x", n))); err != nil {
			return err
		}
	}
	in := dynamicpb.NewMessage(d.Input())
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	switch d.Name() {
	case "Echo":
		return stream.SendMsg(in)
	case "Count":
		for i := range field(in, "to").Int() {
			if err := c.number(i + 1); err != nil {
				return err
			}
		}
	case "Fail", "FailLate":
		return c.fail(in)
	case "Slow":
		return c.wait()
	case "Forever":
		return c.forever()
	case "Large":
		out := dynamicpb.NewMessage(d.Output())
		set(out, "text", protoreflect.ValueOfString(strings.Repeat("x", int(field(in, "to").Int()))))
		return stream.SendMsg(out)
	case "Meta":
		return c.meta()
	case "Day":
		out := dynamicpb.NewMessage(d.Output())
		set(out, "seconds", protoreflect.ValueOfInt64(int64(len(field(in, "value").String()))*86400))
		return stream.SendMsg(out)
	case "Broken":
		return stream.SendMsg(raw("\x0a\xff\xff\xff\xff\x0fnonsense " + strings.Join(md["authorization"], "")))
	case "Nothing":
		return nil
	case "Old":
		return stream.SendMsg(dynamicpb.NewMessage(d.Output()))
	}
	return nil
}

func field(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(name))
}

func set(m protoreflect.Message, name protoreflect.Name, v protoreflect.Value) {
	m.Set(m.Descriptor().Fields().ByName(name), v)
}

func (c *call) number(n int64) error {
	out := dynamicpb.NewMessage(c.d.Output())
	set(out, "n", protoreflect.ValueOfInt64(n))
	return c.stream.SendMsg(out)
}

func (c *call) sum() error {
	total := int64(0)
	for {
		in := dynamicpb.NewMessage(c.d.Input())
		err := c.stream.RecvMsg(in)
		if err == io.EOF {
			return c.number(total)
		}
		if err != nil {
			return err
		}
		total += field(in, "n").Int()
	}
}

func (c *call) chat() error {
	for {
		in := dynamicpb.NewMessage(c.d.Input())
		err := c.stream.RecvMsg(in)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = c.stream.SendMsg(in)
		}
		if err != nil {
			return err
		}
	}
}

func (c *call) fail(in protoreflect.Message) error {
	if c.d.Name() == "FailLate" {
		if err := c.number(1); err != nil {
			return err
		}
	}
	st := status.New(codes.Code(field(in, "code").Int()), field(in, "message").String()).Proto()
	if field(in, "tell").Bool() {
		st.Message += strings.Join(c.md["authorization"], "") + strings.Join(c.md["x-key"], "")
	}
	list := field(in, "details").List()
	for i := range list.Len() {
		d := list.Get(i).Message()
		a := &anypb.Any{TypeUrl: field(d, "type_url").String(), Value: field(d, "value").Bytes()}
		st.Details = append(st.Details, a)
	}
	return status.FromProto(st).Err()
}

func (c *call) wait() error {
	if c.o.Started != nil {
		c.o.Started <- struct{}{}
	}
	<-c.stream.Context().Done()
	if c.o.Stopped != nil {
		c.o.Stopped <- struct{}{}
	}
	return c.stream.Context().Err()
}

// forever sends numbers until the caller is gone.
func (c *call) forever() error {
	for n := int64(1); ; n++ {
		if err := c.number(n); err != nil {
			if c.o.Stopped != nil {
				c.o.Stopped <- struct{}{}
			}
			return err
		}
	}
}

func (c *call) meta() error {
	out := dynamicpb.NewMessage(c.d.Output())
	fields := out.Mutable(out.Descriptor().Fields().ByName("fields")).Map()
	keys := make([]string, 0, len(c.md))
	for k := range c.md {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		v := fields.NewValue()
		set(v.Message(), "string_value", protoreflect.ValueOfString(strings.Join(c.md[k], ",")))
		fields.Set(protoreflect.ValueOfString(k).MapKey(), v)
	}
	if deadline, ok := c.stream.Context().Deadline(); ok {
		v := fields.NewValue()
		set(v.Message(), "string_value", protoreflect.ValueOfString(fmt.Sprint(!deadline.IsZero())))
		fields.Set(protoreflect.ValueOfString(":deadline").MapKey(), v)
	}
	return c.stream.SendMsg(out)
}
