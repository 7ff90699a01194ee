package grpc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
)

// Options say where the services are described and how they are called. Without Protoset and Protos
// the target's reflection is used.
type Options struct {
	Target    string // host:port the tools call
	Namespace string // of the tools; derived from the first service's package if empty

	Protoset    []byte   // a FileDescriptorSet
	Protos      []string // names of .proto files, below ImportPaths
	ImportPaths []string // folders; nothing outside them is read

	// Connection settings of the tools, and of reflection.
	Plaintext  bool
	ServerName string            // expected in the server's certificate; "" means the target's host
	CA         []byte            // PEM of the trusted authorities; nil: the system's
	Metadata   map[string]string // sent with every call; no secrets
	Auth       *toolkeep.AuthSpec
	Deadline   time.Duration // of each call, sent to the server; 0: the call's own
	MaxFrames  int           // of a stream; 0: the executor's default

	// For reflection alone.
	ReflectMetadata map[string]string // may hold secrets
	Certificate     *tls.Certificate
	Dial            func(ctx context.Context, addr string) (net.Conn, error) // nil dials directly

	// Services and Methods are patterns (path.Match) of what to import; empty imports all. A
	// service matches by its full or short name, a method by its name or as Service/Method.
	Services, Methods []string

	Previous source.Previous // nil treats every tool as new

	short []string // methods whose Any contents did not fit
}

// Limits of a source.
const (
	maxServices  = 1_000
	maxMethods   = 20_000
	maxManifests = 64 << 20 // bytes of all manifests together
	maxText      = 8_000
	maxFieldText = 1_000
)

// method is one method being imported.
type method struct {
	d    protoreflect.MethodDescriptor
	name string // of the tool, without namespace
}

func (m method) origin() string { return string(m.d.Parent().FullName()) + "/" + string(m.d.Name()) }

// Read plans the tools.
//
// Errors: E3011 describes a fault in the options or the source. A method that cannot become a tool
// is in Refused.
func Read(ctx context.Context, o Options) (*source.Plan, error) {
	host, port, err := o.check()
	if err != nil {
		return nil, err
	}
	plan := &source.Plan{Title: o.Target}
	set, names, err := o.load(ctx, plan)
	if err != nil {
		return nil, err
	}
	files, err := build(set)
	if err != nil {
		return nil, err
	}
	all, err := methods(files, names)
	if err != nil {
		return nil, err
	}
	name(all)
	taken := o.choose(all)
	if len(taken) == 0 {
		return nil, invalid("no method is left: the source has %d methods, and --service and --method choose none of them", len(all))
	}
	if o.Namespace == "" {
		o.Namespace = namespace(taken[0].d, host)
	}
	plan.Items = len(taken)
	described := whole{}
	size := 0
	for _, m := range taken {
		if err := ctx.Err(); err != nil {
			return nil, invalid("the time for reading the source was over after %d of %d methods; choose fewer with --service or --method", len(plan.Tools), len(taken)).Because(err)
		}
		t, why := o.tool(m, described, host, port, plan)
		if why != "" {
			plan.Refused = append(plan.Refused, source.Refused{Origin: m.origin(), Reason: why})
			continue
		}
		if size += len(t.Manifest); size > maxManifests {
			return nil, invalid("the manifests of %d methods take more than %d MiB, of %d methods; choose fewer with --service or --method", len(plan.Tools), maxManifests>>20, len(taken))
		}
		plan.Tools = append(plan.Tools, t)
	}
	if n := len(o.short); n > 0 {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("in tools for %d methods, such as %s, there is no room for all types that their Any fields may hold; those are shown as bytes", n, o.short[0]))
	}
	return plan, nil
}

func invalid(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ImportFailed, format, args...)
}

func (o *Options) check() (host string, port int, err error) {
	h, p, bad := net.SplitHostPort(o.Target)
	n, badPort := strconv.Atoi(p)
	switch {
	case strings.Contains(o.Target, "://"):
		_, rest, _ := strings.Cut(o.Target, "://")
		return "", 0, invalid("the target is host:port without a scheme: write %s, with --plaintext if it speaks without TLS", strings.TrimRight(rest, "/"))
	case bad != nil || h == "" || badPort != nil || n < 1 || n > 65535:
		return "", 0, invalid("the target must be host:port, such as greeter.example.com:443, not %q", o.Target)
	case len(o.Protoset) > 0 && len(o.Protos) > 0:
		return "", 0, invalid("the services come from a descriptor set or from .proto files, not from both")
	case len(o.Protos) > 0 && len(o.ImportPaths) == 0:
		return "", 0, invalid(".proto files are read below import paths; name at least one")
	case o.Deadline < 0 || o.Deadline > 0 && o.Deadline < time.Millisecond:
		return "", 0, invalid("the deadline of calls must be a millisecond or more, such as 5s, not %s", o.Deadline)
	case o.MaxFrames < 0:
		return "", 0, invalid("the messages of a stream that are collected must be 1 or more, not %d", o.MaxFrames)
	case o.Plaintext && (o.ServerName != "" || len(o.CA) > 0 || o.Certificate != nil || o.Auth != nil && o.Auth.Type == "mtls"):
		return "", 0, invalid("a plaintext connection has no server name, authority or client certificate")
	}
	for _, pattern := range slices.Concat(o.Services, o.Methods) {
		if _, err := path.Match(pattern, ""); err != nil {
			return "", 0, invalid("%q is not a pattern; * stands for any characters, ? for one", pattern)
		}
	}
	return h, n, source.CheckNamespace(o.Namespace)
}

// load returns the descriptors, and the services to consider; nil means all.
func (o *Options) load(ctx context.Context, plan *source.Plan) (*descriptorpb.FileDescriptorSet, []string, error) {
	switch {
	case len(o.Protoset) > 0:
		plan.Digest = canon.Digest(o.Protoset)
		set, err := readSet(o.Protoset)
		return set, nil, err
	case len(o.Protos) > 0:
		set, err := compile(ctx, o.Protos, o.ImportPaths)
		return set, o.Protos, err
	}
	return o.reflect(ctx, plan)
}

// methods lists the methods in order of their full names. only names the files or the services to
// consider; empty means all.
func methods(files *protoregistry.Files, only []string) ([]method, error) {
	var all []method
	services := 0
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			if strings.HasPrefix(string(s.FullName()), "grpc.reflection.") {
				continue
			}
			if len(only) > 0 && !slices.Contains(only, f.Path()) && !slices.Contains(only, string(s.FullName())) {
				continue
			}
			services++
			for j := range s.Methods().Len() {
				all = append(all, method{d: s.Methods().Get(j)})
			}
		}
		return services <= maxServices && len(all) <= maxMethods
	})
	if services > maxServices || len(all) > maxMethods {
		return nil, invalid("the source has more than %d services or %d methods", maxServices, maxMethods)
	}
	slices.SortFunc(all, func(a, b method) int { return cmp.Compare(a.origin(), b.origin()) })
	return all, nil
}

// choose keeps the methods that match the patterns.
func (o *Options) choose(all []method) []method {
	matches := func(patterns []string, texts ...string) bool {
		return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
			return slices.ContainsFunc(texts, func(t string) bool { ok, _ := path.Match(p, t); return ok })
		})
	}
	var out []method
	for _, m := range all {
		s := m.d.Parent()
		own := string(m.d.Name())
		if matches(o.Services, string(s.FullName()), string(s.Name())) &&
			matches(o.Methods, own, string(s.Name())+"/"+own, string(s.FullName())+"/"+own) {
			out = append(out, m)
		}
	}
	return out
}

// name gives every method a unique name, independent of the selection.
func name(all []method) {
	forms := []func(method) string{
		func(m method) string { return string(m.d.Parent().Name()) + "_" + string(m.d.Name()) },
		func(m method) string {
			pkg := string(m.d.ParentFile().Package())
			return pkg[strings.LastIndexByte(pkg, '.')+1:] + "_" + string(m.d.Parent().Name()) + "_" + string(m.d.Name())
		},
		func(m method) string {
			return strings.ReplaceAll(string(m.d.Parent().FullName()), ".", "_") + "_" + string(m.d.Name())
		},
		func(m method) string { return hashed(m) },
	}
	left := make([]int, len(all))
	for i := range left {
		left[i] = i
	}
	used := map[string]bool{}
	for step, form := range forms {
		by := map[string][]int{}
		for _, i := range left {
			n := form(all[i])
			if len(n) > 64 {
				n = hashed(all[i])
			}
			by[n] = append(by[n], i)
		}
		left = left[:0:0]
		for n, list := range by {
			if len(list) > 1 && step < len(forms)-1 || used[n] {
				left = append(left, list...)
				continue
			}
			used[n] = true
			all[list[0]].name = n
		}
		slices.Sort(left)
	}
}

// hashed returns the start of a long name with a hash of the full name.
func hashed(m method) string {
	sum := sha256.Sum256([]byte(m.origin()))
	n := string(m.d.Parent().Name()) + "_" + string(m.d.Name())
	return n[:min(len(n), 51)] + "_" + hex.EncodeToString(sum[:6])
}

// namespace is derived from the package's last part that is not a version, or from the host.
func namespace(d protoreflect.MethodDescriptor, host string) string {
	parts := strings.Split(string(d.ParentFile().Package()), ".")
	for _, p := range slices.Backward(parts) {
		if version(p) {
			continue
		}
		if n := catalog.Identifier(p); n != "" {
			return shorten(n)
		}
	}
	first, _, _ := strings.Cut(host, ".")
	if n := shorten(catalog.Identifier(first)); n != "" {
		return n
	}
	return "grpc"
}

func shorten(n string) string {
	n = strings.ReplaceAll(strings.ToLower(n), "_", "-")
	n = strings.TrimLeft(n, "-0123456789")
	return n[:min(len(n), 32)]
}

// version reports whether a part of a package is a version such as v1 or v1beta2.
func version(p string) bool {
	return len(p) > 1 && p[0] == 'v' && p[1] >= '0' && p[1] <= '9'
}

// tool plans the tool, or returns why it cannot.
func (o *Options) tool(m method, files whole, host string, port int, plan *source.Plan) (source.Tool, string) {
	for _, d := range []protoreflect.MessageDescriptor{m.d.Input(), m.d.Output()} {
		if why := unusable(d, map[protoreflect.FullName]bool{}); why != "" {
			return source.Tool{}, why
		}
	}
	descriptors, short := files.descriptors(m.d)
	if len(descriptors) > maxDescriptors {
		return source.Tool{}, fmt.Sprintf("the types it needs have %d bytes as descriptors; a tool's binding takes %d", len(descriptors), maxDescriptors)
	}
	arguments, lost := source.Shrink(parameters(m.d), source.MaxParameters)
	if lost != "" {
		plan.Warnings = append(plan.Warnings, m.origin()+": the schema of its arguments "+lost)
	}
	answer, lost := source.Shrink(result(m.d), source.MaxResult)
	if lost != "" {
		plan.Warnings = append(plan.Warnings, m.origin()+": the schema of its result "+lost)
	}
	manifest := map[string]any{
		"schema_version": json.Number("1"), "tool_id": o.Namespace + "." + m.name,
		"tool_name":         toolkeep.CutBytes(string(m.d.Parent().Name())+" "+string(m.d.Name()), 200),
		"description":       describe(m.d),
		"parameters_schema": arguments, "result_schema": answer,
		"permissions": map[string]any{"network": []any{map[string]any{"host": host, "port": json.Number(strconv.Itoa(port))}}},
		"execution":   map[string]any{"kind": "grpc", "binding": o.binding(m, descriptors)},
	}
	effects(manifest, m.d)
	if deprecated(m.d) {
		manifest["tags"] = []any{"deprecated"}
		plan.Warnings = append(plan.Warnings, m.origin()+" is marked as deprecated")
	}
	if o.Auth != nil {
		manifest["auth"] = source.Auth(o.Auth)
	}
	t, err := source.Settle(manifest, toolkeep.SourceSpec{Type: "grpc", URI: "grpc://" + o.Target, Digest: canon.Digest(descriptors),
		Metadata: map[string]any{"service": string(m.d.Parent().FullName()), "method": string(m.d.Name())}}, o.Previous)
	if err != nil {
		return t, catalog.FaultText(err)
	}
	t.Origin = m.origin()
	if short {
		o.short = append(o.short, m.origin())
	}
	return t, ""
}

func (o *Options) binding(m method, descriptors []byte) map[string]any {
	b := map[string]any{"target": o.Target, "method": m.origin(), "descriptors": base64.StdEncoding.EncodeToString(descriptors)}
	if o.Plaintext {
		b["plaintext"] = true
	}
	secure := map[string]any{}
	if o.ServerName != "" {
		secure["server_name"] = o.ServerName
	}
	if len(o.CA) > 0 {
		secure["ca"] = string(o.CA)
	}
	if len(secure) > 0 {
		b["tls"] = secure
	}
	if len(o.Metadata) > 0 {
		md := map[string]any{}
		for k, v := range o.Metadata {
			md[strings.ToLower(k)] = v
		}
		b["metadata"] = md
	}
	if o.Deadline > 0 {
		b["deadline_ms"] = json.Number(strconv.FormatInt(o.Deadline.Milliseconds(), 10))
	}
	if o.MaxFrames > 0 {
		b["max_frames"] = json.Number(strconv.Itoa(o.MaxFrames))
	}
	return b
}

func effects(manifest map[string]any, d protoreflect.MethodDescriptor) {
	manifest["side_effects"] = "writes"
	o, _ := d.Options().(*descriptorpb.MethodOptions)
	switch o.GetIdempotencyLevel() {
	case descriptorpb.MethodOptions_NO_SIDE_EFFECTS:
		manifest["side_effects"], manifest["idempotent"] = "reads", true
	case descriptorpb.MethodOptions_IDEMPOTENT:
		manifest["idempotent"] = true
	}
}

func deprecated(d protoreflect.MethodDescriptor) bool {
	m, _ := d.Options().(*descriptorpb.MethodOptions)
	s, _ := d.Parent().Options().(*descriptorpb.ServiceOptions)
	return m.GetDeprecated() || s.GetDeprecated()
}

// describe returns the method's comment, or a generated sentence, plus notes about streams.
func describe(d protoreflect.MethodDescriptor) string {
	text := comment(d)
	if text == "" {
		text = fmt.Sprintf("Calls the gRPC method %s of %s.", d.Name(), d.Parent().FullName())
		if service := comment(d.Parent()); service != "" {
			text += " The service: " + service
		}
	}
	text = toolkeep.CutBytes(text, maxText-400)
	switch {
	case d.IsStreamingClient() && d.IsStreamingServer():
		text += "\n\nTakes a list of messages, which are all sent, and answers with the list of messages that came back."
	case d.IsStreamingClient():
		text += "\n\nTakes a list of messages and answers once."
	case d.IsStreamingServer():
		text += "\n\nAnswers with the list of messages that came; complete is false where a limit cut it off."
	}
	return text
}

// comment returns a declaration's leading or trailing comment.
func comment(d protoreflect.Descriptor) string {
	l := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := l.LeadingComments
	if strings.TrimSpace(text) == "" {
		text = l.TrailingComments
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.ToValidUTF8(strings.TrimSpace(strings.Join(lines, "\n")), "\uFFFD")
}
