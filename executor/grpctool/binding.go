package grpctool

import (
	"crypto/x509"
	"encoding/base64"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// Limits of a binding.
const (
	maxDescriptors  = 768 << 10 // bytes of the FileDescriptorSet
	maxCA           = 64 << 10
	maxMetadata     = 64
	maxMetadataText = 8 << 10
	defaultFrames   = 1000
	mostFrames      = 100_000
	mostFrameBytes  = 256 << 20
	mostDeadline    = 24 * time.Hour
)

// binding is a parsed execution.binding, reused for many calls.
type binding struct {
	target     string // host:port
	host       string
	plaintext  bool
	serverName string
	ca         string
	roots      *x509.CertPool
	path       string // /package.Service/Method
	method     protoreflect.MethodDescriptor
	types      *types
	metadata   []pair
	deadline   time.Duration
	frames     int
	frameBytes int64
	takesKey   bool // the caller's key, if any, is sent as idempotency-key
	allow      []toolkeep.HostPort
}

type pair struct{ name, value string }

// parse reads a manifest's binding. It reports all faults at once.
func parse(m *toolkeep.Manifest) (*binding, []toolkeep.Fault) {
	r := &bindings.Reader{}
	top, ok := r.Read(m)
	if !ok {
		return nil, r.Faults
	}
	b := &binding{target: top.Text("target", true), plaintext: top.Flag("plaintext")}
	b.readTarget(top)
	b.readTLS(top)
	method := top.Text("method", true)
	descriptors := top.Text("descriptors", true)
	b.readMetadata(top)
	b.deadline = time.Duration(top.Count("deadline_ms", 0, int64(mostDeadline/time.Millisecond))) * time.Millisecond
	b.frames = int(top.Count("max_frames", defaultFrames, mostFrames))
	b.frameBytes = top.Count("max_frame_bytes", mostFrameBytes, mostFrameBytes)
	top.Done()
	b.readMethod(top, method, descriptors)
	r.Auth(m, func(at string, s toolkeep.AuthSpec) { checkSpec(r, at, s, b) })
	if len(r.Faults) > 0 {
		return nil, r.Faults
	}
	b.takesKey = m.Idempotent
	if m.Permissions != nil {
		b.allow = m.Permissions.Network
	}
	return b, nil
}

func (b *binding) readTarget(top *bindings.Object) {
	if b.target == "" {
		return
	}
	host, port, err := net.SplitHostPort(b.target)
	n, badPort := strconv.Atoi(port)
	switch {
	case err != nil, host == "", badPort != nil, n < 1, n > 65535, strings.ContainsAny(host, "/@?#% \"\\<>^`{|}"), !plainText(host):
		top.Fault("target", "host", "the target must be host:port, such as greeter.example.com:443")
	}
	b.host = host
}

func (b *binding) readTLS(top *bindings.Object) {
	o, ok := top.Sub("tls")
	if !ok {
		return
	}
	b.serverName, b.ca = o.Text("server_name", false), o.Text("ca", false)
	o.Done()
	if b.plaintext {
		top.Fault("tls", "unsupported", "a plaintext connection has no TLS; leave tls or plaintext out")
	}
	if b.serverName != "" && (!plainText(b.serverName) || strings.ContainsAny(b.serverName, "/:@ ")) {
		o.Fault("server_name", "host", "the server's name must be a host name")
	}
	if b.ca == "" {
		return
	}
	b.roots = x509.NewCertPool()
	if len(b.ca) > maxCA || !b.roots.AppendCertsFromPEM([]byte(b.ca)) {
		o.Fault("ca", "pem", "ca must hold certificates in PEM form, at most %d bytes", maxCA)
	}
}

func (b *binding) readMetadata(top *bindings.Object) {
	o, ok := top.Sub("metadata")
	if !ok {
		return
	}
	if len(o.Tree) > maxMetadata {
		top.Fault("metadata", "limit", "at most %d metadata are sent", maxMetadata)
	}
	for _, name := range o.Names() {
		value := o.Text(name, false)
		key := strings.ToLower(name)
		if why := metadataFault(key, value); why != "" {
			o.Fault(name, "metadata", "%s", why)
		}
		b.metadata = append(b.metadata, pair{key, value})
	}
	o.Done()
}

func (b *binding) readMethod(top *bindings.Object, method, descriptors string) {
	if method == "" || descriptors == "" {
		return
	}
	raw, err := base64.StdEncoding.DecodeString(descriptors)
	if err != nil {
		top.Fault("descriptors", "base64", "descriptors must be a FileDescriptorSet in standard base64")
		return
	}
	if len(raw) > maxDescriptors {
		top.Fault("descriptors", "size", "descriptors have %d bytes; at most %d are read", len(raw), maxDescriptors)
		return
	}
	files, why := buildFiles(raw)
	if why != "" {
		top.Fault("descriptors", "descriptor", "%s", why)
		return
	}
	b.types = &types{files: files}
	service, name, ok := strings.Cut(method, "/")
	d, err := files.FindDescriptorByName(protoreflect.FullName(service))
	sd, isService := d.(protoreflect.ServiceDescriptor)
	if !ok || err != nil || !isService {
		top.Fault("method", "method", "the method must be package.Service/Method, and its service one of descriptors")
		return
	}
	if b.method = sd.Methods().ByName(protoreflect.Name(name)); b.method == nil {
		top.Fault("method", "method", "the service %s has no method %q", service, name)
		return
	}
	b.path = "/" + method
	for _, d := range []protoreflect.MessageDescriptor{b.method.Input(), b.method.Output()} {
		if why := unusable(d, map[protoreflect.FullName]bool{}); why != "" {
			top.Fault("descriptors", "descriptor", "%s", why)
		}
	}
}

// plainText reports whether s is printable ASCII.
func plainText(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// metadataFault returns why a name and value cannot be sent, or "". The name is in
// lower case.
func metadataFault(name, value string) string {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return "a metadata name has letters, digits, \"-\", \"_\" and \".\" alone"
		}
	}
	switch {
	case name == "":
		return "a metadata name cannot be empty"
	case strings.HasPrefix(name, "grpc-") || reserved[name]:
		return "the metadata " + strconv.Quote(name) + " belongs to gRPC or HTTP/2 and cannot be set"
	case len(name)+len(value) > maxMetadataText:
		return "a metadata has at most 8 KiB"
	case !strings.HasSuffix(name, "-bin") && !plainText(value):
		return "the value has characters that metadata cannot hold; a name that ends in -bin takes any bytes"
	}
	return ""
}

// reserved are headers of the connection or of the protocol.
var reserved = map[string]bool{
	"content-type": true, "te": true, "user-agent": true, "host": true, "connection": true, "keep-alive": true,
	"proxy-connection": true, "transfer-encoding": true, "upgrade": true, "content-length": true,
}
