package grpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/proto/wellknown"
)

// Limits of reflection.
const (
	maxRequests   = 6_000
	maxReflected  = 32 << 20 // bytes of all files
	maxReflection = 8 << 20  // bytes of one answer
	reflectTime   = 60 * time.Second
	probeTime     = 5 * time.Second
)

// reflectionMethods are tried in order; their messages are the same.
var reflectionMethods = []string{
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}

// reflect queries the target's reflection for its services and their files.
func (o *Options) reflect(ctx context.Context, plan *source.Plan) (*descriptorpb.FileDescriptorSet, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, reflectTime)
	defer cancel()
	conn, err := o.connect()
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	for _, name := range reflectionMethods {
		r := &asking{ctx: ctx, conn: conn, method: name, o: o, files: map[string]*descriptorpb.FileDescriptorProto{}, asked: map[string]bool{}}
		services, err := r.run()
		r.stop()
		if status.Code(err) == codes.Unimplemented {
			continue
		}
		if err != nil {
			return nil, nil, o.unanswered(ctx, err)
		}
		for _, missing := range r.missing {
			plan.Warnings = append(plan.Warnings, "the server does not have the file "+missing+", which others import; methods that need its types are refused")
		}
		set := &descriptorpb.FileDescriptorSet{}
		for _, name := range r.order {
			set.File = append(set.File, r.files[name])
		}
		return set, services, nil
	}
	return nil, nil, invalid("the server at %s has no reflection; import from a descriptor set (--protoset) or from .proto files (--proto)", o.Target)
}

// unanswered explains why reflection failed.
func (o *Options) unanswered(ctx context.Context, err error) error {
	var l *lie
	if errors.As(err, &l) {
		return invalid("the reflection of %s cannot be used: %s", o.Target, l.why)
	}
	st := status.Convert(err)
	switch st.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		return invalid("the server at %s refuses reflection (%s); send it a credential with --reflect-metadata", o.Target, st.Code())
	case codes.Unavailable:
		speaks, known := o.speaksTLS(ctx)
		switch {
		case known && !speaks && !o.Plaintext:
			return invalid("the server at %s does not speak TLS; connect without it by --plaintext", o.Target)
		case known && speaks && o.Plaintext:
			return invalid("the server at %s speaks TLS; leave --plaintext out", o.Target)
		}
		return invalid("the server at %s cannot be reached: %s", o.Target, toolkeep.CutBytes(st.Message(), 500))
	}
	return invalid("the server at %s did not answer reflection: %s %s", o.Target, st.Code(), toolkeep.CutBytes(st.Message(), 500))
}

// speaksTLS reports whether the target answers the beginning of a TLS connection, on which nothing is sent, and whether
// that could be found out.
func (o *Options) speaksTLS(ctx context.Context) (speaks, known bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	conn, err := o.dialer()(ctx, o.Target)
	if err != nil {
		return false, false
	}
	defer conn.Close()
	name := o.ServerName
	if host, _, err := net.SplitHostPort(o.Target); err == nil {
		name = cmp.Or(name, host)
	}
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: name, NextProtos: []string{"h2"}}).HandshakeContext(ctx)
	var record tls.RecordHeaderError
	var alert *net.OpError // as crypto/tls tells what the other side refuses
	switch {
	case err == nil, errors.As(err, &alert) && alert.Op == "remote error":
		return true, true
	case errors.As(err, &record):
		return false, true
	}
	return false, false
}

// dialer is how the target is connected to.
func (o *Options) dialer() func(context.Context, string) (net.Conn, error) {
	if o.Dial != nil {
		return o.Dial
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	return func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
}

func (o *Options) connect() (*rpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if !o.Plaintext {
		c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
		if len(o.CA) > 0 {
			c.RootCAs = x509.NewCertPool()
			if !c.RootCAs.AppendCertsFromPEM(o.CA) {
				return nil, invalid("the file of authorities holds no certificate in PEM form")
			}
		}
		if o.Certificate != nil {
			c.Certificates = []tls.Certificate{*o.Certificate}
		}
		creds = credentials.NewTLS(c)
	}
	conn, err := rpc.NewClient("passthrough:///"+o.Target, rpc.WithTransportCredentials(creds), rpc.WithContextDialer(o.dialer()),
		rpc.WithNoProxy(), rpc.WithDisableServiceConfig(), rpc.WithDisableRetry(), rpc.WithUserAgent("toolkeep"),
		rpc.WithMaxHeaderListSize(256<<10))
	if err != nil {
		return nil, invalid("the target cannot be dialled: %s", err)
	}
	return conn, nil
}

// lie is an invalid reflection answer.
type lie struct{ why string }

func (l *lie) Error() string { return l.why }

func lief(format string, args ...any) error { return &lie{fmt.Sprintf(format, args...)} }

// asking is one stream of reflection.
type asking struct {
	ctx    context.Context
	conn   *rpc.ClientConn
	method string
	o      *Options
	stream rpc.ClientStream
	cancel context.CancelFunc

	files    map[string]*descriptorpb.FileDescriptorProto
	order    []string
	asked    map[string]bool
	missing  []string
	requests int
	bytes    int
}

func (r *asking) stop() {
	if r.cancel != nil {
		r.cancel()
	}
}

// run returns the names of the services; the files are in r.
func (r *asking) run() ([]string, error) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.cancel = cancel
	md := metadata.MD{}
	for k, v := range r.o.Metadata {
		md.Set(k, v)
	}
	for k, v := range r.o.ReflectMetadata {
		md.Set(k, v)
	}
	var err error
	r.stream, err = r.conn.NewStream(metadata.NewOutgoingContext(ctx, md), &rpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		r.method, rpc.MaxCallRecvMsgSize(maxReflection))
	if err != nil {
		return nil, err
	}
	answer, err := r.ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}})
	if err != nil {
		return nil, err
	}
	list := answer.GetListServicesResponse()
	if list == nil {
		return nil, lief("it does not list its services")
	}
	var services []string
	for _, s := range list.Service {
		name := s.GetName()
		if strings.HasPrefix(name, "grpc.reflection.") || slices.Contains(services, name) {
			continue
		}
		if !protoreflect.FullName(name).IsValid() {
			return nil, lief("it lists a service with the name %q", toolkeep.CutBytes(name, 200))
		}
		if services = append(services, name); len(services) > maxServices {
			return nil, lief("it lists more than %d services", maxServices)
		}
	}
	if len(services) == 0 {
		return nil, lief("it lists no services")
	}
	for _, s := range services {
		if err := r.symbol(s); err != nil {
			return nil, err
		}
	}
	return services, r.imports()
}

func (r *asking) ask(q *reflection.ServerReflectionRequest) (*reflection.ServerReflectionResponse, error) {
	if r.requests++; r.requests > maxRequests {
		return nil, lief("it takes more than %d requests to read", maxRequests)
	}
	if err := r.stream.SendMsg(q); err != nil && err != io.EOF {
		return nil, err
	}
	answer := &reflection.ServerReflectionResponse{}
	if err := r.stream.RecvMsg(answer); err != nil {
		if err == io.EOF {
			err = lief("it ended before it answered")
		}
		return nil, err
	}
	return answer, nil
}

func (r *asking) symbol(name string) error {
	answer, err := r.ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
	if err != nil {
		return err
	}
	if e := answer.GetErrorResponse(); e != nil {
		return lief("it lists the service %s and does not have its file", name)
	}
	return r.take(answer.GetFileDescriptorResponse())
}

func (r *asking) take(answer *reflection.FileDescriptorResponse) error {
	if answer == nil {
		return lief("it answers with something that is not a file descriptor")
	}
	for _, raw := range answer.FileDescriptorProto {
		if r.bytes += len(raw); r.bytes > maxReflected {
			return lief("its files are over %d bytes together", maxReflected)
		}
		f := &descriptorpb.FileDescriptorProto{}
		if err := decodeAs.Unmarshal(raw, f); err != nil {
			return lief("it answers with something that is not a file descriptor")
		}
		if known := r.files[f.GetName()]; known != nil {
			if !proto.Equal(known, f) {
				return lief("it has two different files with the name %s", toolkeep.CutBytes(f.GetName(), 200))
			}
			continue
		}
		if len(r.order) == maxFiles {
			return lief("it has more than %d files", maxFiles)
		}
		r.files[f.GetName()] = f
		r.order = append(r.order, f.GetName())
	}
	return nil
}

// imports requests imported files that the server did not send.
func (r *asking) imports() error {
	for i := 0; i < len(r.order); i++ {
		for _, name := range r.files[r.order[i]].Dependency {
			if r.files[name] != nil || wellknown.Has(name) || r.asked[name] {
				continue
			}
			r.asked[name] = true
			answer, err := r.ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileByFilename{FileByFilename: name}})
			if err != nil {
				return err
			}
			if answer.GetErrorResponse() == nil {
				if err := r.take(answer.GetFileDescriptorResponse()); err != nil {
					return err
				}
			}
			if r.files[name] == nil {
				r.missing = append(r.missing, toolkeep.CutBytes(name, 200))
			}
		}
	}
	return nil
}
