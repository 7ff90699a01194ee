package grpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/executor/grpctool"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
	"github.com/toolkeep/toolkeep/schema"
)

func read(t testing.TB, o Options) *source.Plan {
	t.Helper()
	plan, err := Read(t.Context(), o)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return plan
}

func protoset(t testing.TB) []byte {
	t.Helper()
	set, err := grpctest.Set()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func find(t testing.TB, plan *source.Plan, name string) *toolkeep.Tool {
	t.Helper()
	for _, tool := range plan.Tools {
		if tool.Name == name {
			parsed, err := catalog.ParseManifest(tool.Manifest)
			if err != nil {
				t.Fatal(err)
			}
			return parsed
		}
	}
	names := []string{}
	for _, tool := range plan.Tools {
		names = append(names, tool.Name)
	}
	t.Fatalf("no tool %s among %v; refused %v", name, names, plan.Refused)
	return nil
}

// ids returns a plan's tools without their namespaces.
func ids(plan *source.Plan) []string {
	var out []string
	for _, tool := range plan.Tools {
		_, name, _ := strings.Cut(tool.Name, ".")
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func wantAll(t *testing.T, plan *source.Plan) {
	t.Helper()
	want := []string{"Kinds_Broken", "Kinds_Chat", "Kinds_Count", "Kinds_Day", "Kinds_Fail", "Kinds_FailLate", "Kinds_Forever", "Kinds_Large",
		"Kinds_Meta", "Kinds_Nothing", "Kinds_Old", "Kinds_Slow", "Kinds_Sum", "Legacy_Echo", "modern_Kinds_Echo", "v1_Kinds_Echo"}
	if got := ids(plan); !slices.Equal(got, want) || len(plan.Refused) > 0 {
		t.Fatalf("the tools are\n%v, want\n%v; refused %v", got, want, plan.Refused)
	}
	checker := grpctool.New(grpctool.Config{})
	defer checker.Close()
	for _, tool := range plan.Tools {
		parsed, err := catalog.ParseManifest(tool.Manifest)
		if err != nil {
			t.Errorf("%s: %v", tool.Name, catalog.FaultText(err))
			continue
		}
		if faults := checker.Check(parsed.Manifest); len(faults) > 0 {
			t.Errorf("%s: the executor refuses it: %+v", tool.Name, faults)
		}
		for _, raw := range [][]byte{parsed.Manifest.ParametersSchema, parsed.Manifest.ResultSchema} {
			if _, err := schema.Compile(raw); err != nil {
				t.Errorf("%s: %v in %s", tool.Name, err, raw)
			}
		}
	}
}

// TestSources reads the same services in every way and expects the same tools.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	for name, text := range grpctest.Sources() {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	byFile := read(t, Options{Target: "kinds.example.com:443", Namespace: "kinds",
		Protos: []string{"acme/kinds.proto", "acme/legacy.proto", "acme/modern.proto"}, ImportPaths: []string{dir}})
	wantAll(t, byFile)
	bySet := read(t, Options{Target: "kinds.example.com:443", Namespace: "kinds", Protoset: protoset(t)})
	wantAll(t, bySet)
	for i := range bySet.Tools {
		if a, b := string(bySet.Tools[i].Manifest), string(byFile.Tools[i].Manifest); a != b {
			t.Errorf("%s differs between .proto files and descriptor set:\n%s\n%s", bySet.Tools[i].Name, a, b)
		}
	}
	for _, version := range []string{"", "v1", "v1alpha"} {
		t.Run("reflection "+version, func(t *testing.T) {
			s := grpctest.Start(t, grpctest.Options{Reflection: version})
			plan := read(t, Options{Target: s.Addr, Namespace: "kinds", Plaintext: true})
			wantAll(t, plan)
			if len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "Kinds/Old is marked as deprecated") {
				t.Errorf("the warnings are %q", plan.Warnings)
			}
			tool := find(t, plan, "kinds.Kinds_Count")
			other := find(t, bySet, "kinds.Kinds_Count")
			if a, b := tool.Manifest.Source.Digest, other.Manifest.Source.Digest; a != b {
				t.Errorf("the descriptors differ between reflection and descriptor set: %s %s", a, b)
			}
		})
	}
	t.Run("no reflection", func(t *testing.T) {
		s := grpctest.Start(t, grpctest.Options{Reflection: "none"})
		_, err := Read(t.Context(), Options{Target: s.Addr, Plaintext: true})
		wantText(t, err, "has no reflection")
	})
}

func wantText(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("the error is %v, want one with %q", err, text)
	}
	if e := toolkeep.AsError(err); e.Code != toolkeep.ImportFailed {
		t.Errorf("the code is %s", e.Code)
	}
}

func TestManifest(t *testing.T) {
	plan := read(t, Options{Target: "kinds.example.com:443", Protoset: protoset(t), ServerName: "other.example.com",
		Metadata: map[string]string{"X-Team": "tools"}, Auth: &toolkeep.AuthSpec{Type: "bearer", Secret: "env://TOOLKEEP_SECRET_X"}, MaxFrames: 7, Deadline: 1500e6})
	echo, sum, old := find(t, plan, "kinds.v1_Kinds_Echo").Manifest, find(t, plan, "kinds.Kinds_Sum").Manifest, find(t, plan, "kinds.Kinds_Old").Manifest
	if echo.SideEffects != "reads" || !echo.Idempotent || sum.SideEffects != "writes" || !sum.Idempotent || old.Idempotent {
		t.Error("idempotency_level is not told")
	}
	if echo.Description != "Echo gives the message back." {
		t.Errorf("the description is %q", echo.Description)
	}
	if !slices.Equal(old.Tags, []string{"deprecated"}) || !strings.Contains(old.Description, "Calls the gRPC method Old of acme.kinds.v1.Kinds. The service: Kinds has a method") {
		t.Errorf("deprecated: %v %q", old.Tags, old.Description)
	}
	if m := echo.Source.Metadata; m["service"] != "acme.kinds.v1.Kinds" || m["method"] != "Echo" {
		t.Errorf("the source's metadata are %v", m)
	}
	if n := echo.Permissions.Network; len(n) != 1 || n[0].Host != "kinds.example.com" || n[0].Port != 443 {
		t.Errorf("the network is %v", n)
	}
	for _, part := range []string{`"max_frames":7`, `"deadline_ms":1500`, `"x-team":"tools"`, `"server_name":"other.example.com"`, `"method":"acme.kinds.v1.Kinds/Echo"`} {
		if !strings.Contains(string(echo.Execution.Binding), part) {
			t.Errorf("the binding lacks %s", part)
		}
	}
	if len(echo.Auth) != 1 || echo.Auth[0].Type != "bearer" {
		t.Errorf("auth is %+v", echo.Auth)
	}
}

// TestClosure: descriptors contain only what the method needs.
func TestClosure(t *testing.T) {
	plan := read(t, Options{Target: "kinds.example.com:443", Namespace: "kinds", Protoset: protoset(t)})
	sum := string(find(t, plan, "kinds.Kinds_Sum").Manifest.Execution.Binding)
	if len(sum) > 500 {
		t.Errorf("the binding of Sum has %d bytes: %s", len(sum), sum)
	}
	// Echo has an Any, so it keeps the possible contents.
	files, err := build(mustSet(t))
	if err != nil {
		t.Fatal(err)
	}
	list, err := methods(files, []string{"acme.kinds.v1.Kinds"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		set, _ := whole{}.closure(m.d, true)
		text := set.String()
		if holds := strings.Contains(text, "Unused"); holds != (m.d.Name() == "Echo" || strings.HasPrefix(string(m.d.Name()), "Fail")) {
			t.Errorf("%s: Unused is in the descriptors: %t", m.d.Name(), holds)
		}
		if strings.Contains(text, "google/protobuf/any.proto\"  package") || strings.Contains(text, "idempotency_level") {
			t.Errorf("%s: %s", m.d.Name(), text)
		}
	}
}

func mustSet(t testing.TB) *descriptorpb.FileDescriptorSet {
	t.Helper()
	set, err := readSet(protoset(t))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestSchemas checks values against the schemas of the message with every type.
func TestSchemas(t *testing.T) {
	plan := read(t, Options{Target: "kinds.example.com:443", Namespace: "kinds", Protoset: protoset(t)})
	cases := []struct {
		tool, args string
		ok         bool
	}{
		{"v1_Kinds_Echo", `{}`, true},
		{"v1_Kinds_Echo", `{"anInt64":9007199254740993,"anUint64":"18446744073709551615"}`, false},
		{"v1_Kinds_Echo", `{"anInt64":9007199254740993,"aUint64":"18446744073709551615"}`, true},
		{"v1_Kinds_Echo", `{"anInt64":"x"}`, false},
		{"v1_Kinds_Echo", `{"anInt32":2147483648}`, false},
		{"v1_Kinds_Echo", `{"colour":"COLOUR_RED","byFlag":{"true":"COLOUR_GREEN"},"byLong":{"-5":"x"}}`, true},
		{"v1_Kinds_Echo", `{"colour":"RED"}`, false},
		{"v1_Kinds_Echo", `{"colour":77}`, true}, // as a result shows a value without a name
		{"v1_Kinds_Echo", `{"colour":2147483648}`, false},
		{"Legacy_Echo", `{"name":"x","mood":77}`, false}, // a closed enum has no such value
		{"v1_Kinds_Echo", `{"byFlag":{"yes":"COLOUR_GREEN"}}`, false},
		{"v1_Kinds_Echo", `{"text":"a"}`, true},
		{"v1_Kinds_Echo", `{"text":"a","flag":true}`, false},
		{"v1_Kinds_Echo", `{"self":{"self":{"self":{"text":"a","number":{}}}}}`, false},
		{"v1_Kinds_Echo", `{"self":{"self":{"self":{"number":{"n":"1"}}}}}`, true},
		{"v1_Kinds_Echo", `{"at":"2026-01-31T12:00:00.5Z","within":"-1.5s","mask":"a.b,cD","struct":{"a":[1,null]},"value":null,"list":[1],"null":null}`, true},
		{"v1_Kinds_Echo", `{"at":"yesterday"}`, false},
		{"v1_Kinds_Echo", `{"within":"1m"}`, false},
		{"v1_Kinds_Echo", `{"any":{"@type":"type.googleapis.com/acme.kinds.v1.Number","n":1}}`, true},
		{"v1_Kinds_Echo", `{"any":{"n":1}}`, false},
		{"v1_Kinds_Echo", `{"aDouble":"NaN","aFloat":1.5,"wrappedDouble":"-Infinity","wrappedLong":"5","anotherName":"x"}`, true},
		{"v1_Kinds_Echo", `{"renamed":"x"}`, false},
		{"v1_Kinds_Echo", `{"numbers":[{"n":1},{"n":"2"}],"inner":{"kind":"KIND_ONE"},"place":{"latitude":1}}`, true},
		{"Legacy_Echo", `{}`, false},
		{"Legacy_Echo", `{"name":"x","mood":"CALM","box":{"inside":"y"}}`, true},
		{"modern_Kinds_Echo", `{"wanted":"x","part":{"text":"y"},"mode":"MODE_B"}`, true},
		{"modern_Kinds_Echo", `{"name":"x"}`, false},
		{"Kinds_Sum", `{"messages":[{"n":1},{}]}`, true},
		{"Kinds_Sum", `{"messages":{"n":1}}`, false},
		{"Kinds_Sum", `{}`, false},
		{"Kinds_Day", `{"value":"abc"}`, true},
		{"Kinds_Day", `{}`, false},
	}
	for _, tt := range cases {
		s, err := schema.Compile(find(t, plan, "kinds."+tt.tool).Manifest.ParametersSchema)
		if err != nil {
			t.Fatal(err)
		}
		v, err := canon.Parse([]byte(tt.args), canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if faults := s.Validate(t.Context(), v); (len(faults) == 0) != tt.ok {
			t.Errorf("%s %s: %v", tt.tool, tt.args, faults)
		}
	}
	legacy := string(find(t, plan, "kinds.Legacy_Echo").Manifest.ParametersSchema)
	if !strings.Contains(legacy, `How often.\n\nNot given, it is read as 3.`) || !strings.Contains(legacy, `read as GRUMPY`) || strings.Contains(legacy, `"default"`) {
		t.Errorf("defaults: %s", legacy)
	}
	if echo := string(find(t, plan, "kinds.v1_Kinds_Echo").Manifest.ParametersSchema); !strings.Contains(echo, `"deprecated":true`) || !strings.Contains(echo, `"description":"A flag."`) {
		t.Errorf("the schema is %s", echo)
	}
}

func TestChoice(t *testing.T) {
	set := protoset(t)
	for _, tt := range []struct {
		services, methods []string
		want              []string
	}{
		{[]string{"acme.legacy.*"}, nil, []string{"Legacy_Echo"}},
		{[]string{"Kinds"}, []string{"S*"}, []string{"Kinds_Slow", "Kinds_Sum"}},
		{nil, []string{"Legacy/*", "acme.modern.Kinds/Echo"}, []string{"Legacy_Echo", "modern_Kinds_Echo"}},
	} {
		if got := ids(read(t, Options{Target: "h:1", Protoset: set, Services: tt.services, Methods: tt.methods})); !slices.Equal(got, tt.want) {
			t.Errorf("%v %v choose %v, want %v", tt.services, tt.methods, got, tt.want)
		}
	}
	_, err := Read(t.Context(), Options{Target: "h:1", Protoset: set, Methods: []string{"None"}})
	wantText(t, err, "no method is left")
}

func TestAgain(t *testing.T) {
	o := Options{Target: "h:1", Namespace: "kinds", Protoset: protoset(t)}
	first := read(t, o)
	o.Previous = func(id string) *toolkeep.Tool { return find(t, first, id) }
	for _, tool := range read(t, o).Tools {
		if tool.Change != source.ChangeUnchanged {
			t.Errorf("%s is %s", tool.Name, tool.Change)
		}
	}
	o.MaxFrames = 5
	for _, tool := range read(t, o).Tools {
		if tool.Change == source.ChangeUnchanged || tool.Change == source.ChangeNew {
			t.Errorf("%s is %s after a change", tool.Name, tool.Change)
		}
	}
}

// TestConfined: nothing outside the import paths is read.
func TestConfined(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(outside, "secret.proto", "this is the secret text")
	if err := os.Symlink(filepath.Join(outside, "secret.proto"), filepath.Join(dir, "link.proto")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.proto"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(dir, "big.proto", "// "+strings.Repeat("x", maxProto))
	for i, name := range []string{"../" + filepath.Base(outside) + "/secret.proto", filepath.Join(outside, "secret.proto"), "link.proto", "a/../../secret.proto", "dir.proto", "big.proto", "absent.proto"} {
		t.Run(name, func(t *testing.T) {
			importer := fmt.Sprintf("importer%d.proto", i)
			write(dir, importer, fmt.Sprintf("syntax = \"proto3\";\nimport %q;\nmessage M {}\nservice S { rpc Do(M) returns (M); }\n", name))
			for _, protos := range []string{name, importer} {
				_, err := Read(t.Context(), Options{Target: "h:1", Protos: []string{protos}, ImportPaths: []string{dir}})
				wantText(t, err, "the .proto files cannot be read")
				if strings.Contains(err.Error(), "secret text") || strings.Contains(err.Error(), "this") {
					t.Errorf("the error shows the file: %v", err)
				}
			}
		})
	}
}

// TestMessageSet: a message set refuses the methods that use it and no others, wherever it stands and
// whatever extends it.
func TestMessageSet(t *testing.T) {
	field := func(name string, number int32, typ string) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Number: proto.Int32(number), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(),
			TypeName: proto.String(typ), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	set := func() *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: proto.String("Set"), Options: &descriptorpb.MessageOptions{MessageSetWireFormat: proto.Bool(true)},
			ExtensionRange: []*descriptorpb.DescriptorProto_ExtensionRange{{Start: proto.Int32(4), End: proto.Int32(2147483647)}}}
	}
	extends := field("more", 600_000_000, ".old.Plain")
	extends.Extendee = proto.String(".old.Set")
	inner := field("inner", 5, ".old.Plain")
	inner.Extendee = proto.String(".old.Outer.Set")
	plain := &descriptorpb.DescriptorProto{Name: proto.String("Plain"), Extension: []*descriptorpb.FieldDescriptorProto{inner}}
	method := func(name, in, out string) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: proto.String(name), InputType: proto.String(".old." + in), OutputType: proto.String(".old." + out)}
	}
	old := &descriptorpb.FileDescriptorProto{Name: proto.String("old.proto"), Package: proto.String("old"), Syntax: proto.String("proto2"),
		MessageType: []*descriptorpb.DescriptorProto{set(), plain, {Name: proto.String("Outer"), NestedType: []*descriptorpb.DescriptorProto{set()}},
			{Name: proto.String("Holder"), Field: []*descriptorpb.FieldDescriptorProto{field("deep", 1, ".old.Outer.Set")}}},
		Extension: []*descriptorpb.FieldDescriptorProto{extends},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Old"), Method: []*descriptorpb.MethodDescriptorProto{
			method("Fine", "Plain", "Outer"), method("Takes", "Set", "Plain"), method("Gives", "Plain", "Holder")}}}}
	raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{old}})
	if err != nil {
		t.Fatal(err)
	}
	plan := read(t, Options{Target: "h:1", Protoset: raw})
	if got := strings.Join(ids(plan), " "); got != "Old_Fine" {
		t.Error(got)
	}
	for _, r := range plan.Refused {
		if !strings.Contains(r.Reason, "is a message set") {
			t.Errorf("%+v", r)
		}
	}
	if len(plan.Refused) != 2 {
		t.Errorf("%+v", plan.Refused)
	}
	if faults := grpctool.New(grpctool.Config{}).Check(find(t, plan, plan.Tools[0].Name).Manifest); len(faults) > 0 {
		t.Errorf("%+v", faults)
	}
}

func TestRefused(t *testing.T) {
	many := &descriptorpb.FileDescriptorProto{Name: proto.String("big.proto"), Package: proto.String("big"), Syntax: proto.String("proto3"),
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Big"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Do"), InputType: proto.String(".big.M"), OutputType: proto.String(".big.M")},
			{Name: proto.String("Gap"), InputType: proto.String(".big.M"), OutputType: proto.String(".gone.Missing")},
		}}},
		Dependency: []string{"gone.proto"}}
	m := &descriptorpb.DescriptorProto{Name: proto.String("M")}
	for i := range 20_000 {
		m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{Name: proto.String(fmt.Sprintf("a_field_with_a_long_name_that_takes_its_place_%d", i)),
			Number: proto.Int32(int32(i + 20_000)), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()})
	}
	many.MessageType = append(many.MessageType, m)
	raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{many}})
	if err != nil {
		t.Fatal(err)
	}
	plan := read(t, Options{Target: "h:1", Protoset: raw})
	if len(plan.Tools) != 0 || len(plan.Refused) != 2 {
		t.Fatalf("%d tools, refused %v", len(plan.Tools), plan.Refused)
	}
	if r := plan.Refused[0]; r.Origin != "big.Big/Do" || !strings.Contains(r.Reason, "bytes as descriptors") {
		t.Errorf("refused: %+v", r)
	}
	if r := plan.Refused[1]; r.Origin != "big.Big/Gap" || !strings.Contains(r.Reason, "gone.Missing") {
		t.Errorf("refused: %+v", r)
	}
	for name, o := range map[string]Options{
		"no port":       {Target: "host"},
		"no set":        {Target: "h:1", Protoset: []byte("text")},
		"two sources":   {Target: "h:1", Protoset: raw, Protos: []string{"x.proto"}},
		"no folder":     {Target: "h:1", Protos: []string{"x.proto"}},
		"pattern":       {Target: "h:1", Protoset: raw, Services: []string{"["}},
		"plain and CA":  {Target: "h:1", Protoset: raw, Plaintext: true, CA: []byte("x")},
		"usurped types": {Target: "h:1", Protoset: usurper(t)},
	} {
		if _, err := Read(t.Context(), o); toolkeep.AsError(err) == nil || !toolkeep.IsCode(err, toolkeep.ImportFailed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// usurper defines its own Timestamp in google.protobuf.
func usurper(t testing.TB) []byte {
	raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{Name: proto.String("mine.proto"),
		Package: proto.String("google.protobuf"), MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Timestamp")}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// liar answers reflection by a function.
type liar struct {
	reflection.UnimplementedServerReflectionServer
	answer func(*reflection.ServerReflectionRequest) (*reflection.ServerReflectionResponse, error)
}

func (l *liar) ServerReflectionInfo(s reflection.ServerReflection_ServerReflectionInfoServer) error {
	for {
		q := &reflection.ServerReflectionRequest{}
		if err := s.RecvMsg(q); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		a, err := l.answer(q)
		if err != nil {
			return err
		}
		if err := s.SendMsg(a); err != nil {
			return err
		}
	}
}

func listing(names ...string) *reflection.ServerReflectionResponse {
	list := &reflection.ListServiceResponse{}
	for _, n := range names {
		list.Service = append(list.Service, &reflection.ServiceResponse{Name: n})
	}
	return &reflection.ServerReflectionResponse{MessageResponse: &reflection.ServerReflectionResponse_ListServicesResponse{ListServicesResponse: list}}
}

func fileAnswer(t testing.TB, files ...*descriptorpb.FileDescriptorProto) *reflection.ServerReflectionResponse {
	r := &reflection.FileDescriptorResponse{}
	for _, f := range files {
		raw, err := proto.Marshal(f)
		if err != nil {
			t.Error(err)
		}
		r.FileDescriptorProto = append(r.FileDescriptorProto, raw)
	}
	return &reflection.ServerReflectionResponse{MessageResponse: &reflection.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: r}}
}

func notFound() *reflection.ServerReflectionResponse {
	return &reflection.ServerReflectionResponse{MessageResponse: &reflection.ServerReflectionResponse_ErrorResponse{ErrorResponse: &reflection.ErrorResponse{ErrorCode: int32(codes.NotFound)}}}
}

// TestLies: invalid reflection answers end quickly with an error.
func TestLies(t *testing.T) {
	file := func(name, pkg string, deps ...string) *descriptorpb.FileDescriptorProto {
		return &descriptorpb.FileDescriptorProto{Name: proto.String(name), Package: proto.String(pkg), Syntax: proto.String("proto3"), Dependency: deps,
			MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M")}},
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{
				{Name: proto.String("Do"), InputType: proto.String("." + pkg + ".M"), OutputType: proto.String("." + pkg + ".M")}}}}}
	}
	type answer = *reflection.ServerReflectionResponse
	by := func(list, symbol answer, name func(string) answer) func(*reflection.ServerReflectionRequest) (answer, error) {
		return func(q *reflection.ServerReflectionRequest) (answer, error) {
			switch q.MessageRequest.(type) {
			case *reflection.ServerReflectionRequest_ListServices:
				return list, nil
			case *reflection.ServerReflectionRequest_FileContainingSymbol:
				return symbol, nil
			}
			return name(q.GetFileByFilename()), nil
		}
	}
	never := func(string) answer { return notFound() }
	endless := 0
	huge := file("huge.proto", "a")
	huge.MessageType[0].Name = proto.String("M" + strings.Repeat("x", 6<<20))
	counter := 0
	cases := []struct {
		name, want string
		answer     func(*reflection.ServerReflectionRequest) (answer, error)
	}{
		{"no services", "it lists no services", by(listing(), nil, never)},
		{"no list", "it does not list its services", by(notFound(), nil, never)},
		{"name of a service", "with the name", by(listing("a b\n"), nil, never)},
		{"unknown service", "does not have its file", by(listing("a.S"), notFound(), never)},
		{"no file", "something that is not a file", by(listing("a.S"), listing("x"), never)},
		{"another file", "no method is left", by(listing("b.S"), fileAnswer(t, file("a.proto", "a")), never)},
		{"two files of a name", "two different files", by(listing("a.S"), fileAnswer(t, file("a.proto", "a"), file("a.proto", "b")), never)},
		{"itself", "import", by(listing("a.S"), fileAnswer(t, file("a.proto", "a", "a.proto")), never)},
		{"a cycle", "cycle", by(listing("a.S"), fileAnswer(t, file("a.proto", "a", "b.proto")), func(string) answer { return fileAnswer(t, file("b.proto", "b", "a.proto")) })},
		{"endless files", "more than", by(listing("a.S"), fileAnswer(t, file("0.proto", "p0", "1.proto")), func(string) answer {
			endless++
			return fileAnswer(t, file(fmt.Sprintf("%d.proto", endless), fmt.Sprintf("p%d", endless), fmt.Sprintf("%d.proto", endless+1)))
		})},
		{"huge files", "bytes together", by(listing("a.S"), fileAnswer(t, file("0.proto", "p0", "1.proto")), func(name string) answer {
			counter++
			f := proto.CloneOf(huge)
			f.Name, f.Package, f.Dependency = proto.String(name), proto.String(fmt.Sprintf("q%d", counter)), []string{fmt.Sprintf("%d.proto", counter+1)}
			return fileAnswer(t, f)
		})},
		{"one huge answer", "larger than max", by(listing("a.S"), fileAnswer(t, func() *descriptorpb.FileDescriptorProto {
			f := file("h.proto", "h")
			f.MessageType[0].Name = proto.String(strings.Repeat("x", maxReflection))
			return f
		}()), never)},
		{"an error", "refuses reflection", func(*reflection.ServerReflectionRequest) (answer, error) {
			return nil, status.Error(codes.PermissionDenied, "no")
		}},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			s := grpctest.Start(t, grpctest.Options{Reflector: &liar{answer: tt.answer}})
			_, err := Read(t.Context(), Options{Target: s.Addr, Plaintext: true})
			wantText(t, err, tt.want)
		})
	}
	t.Run("missing import", func(t *testing.T) {
		s := grpctest.Start(t, grpctest.Options{Reflector: &liar{answer: by(listing("a.S"), fileAnswer(t, file("a.proto", "a", "gone.proto")), never)}})
		plan := read(t, Options{Target: s.Addr, Plaintext: true})
		if len(plan.Tools) != 1 || len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "gone.proto") {
			t.Errorf("%v %v %v", plan.Tools, plan.Refused, plan.Warnings)
		}
	})
}

// TestReflectionTLS reads over TLS with a client certificate and metadata.
func TestReflectionTLS(t *testing.T) {
	ca := grpctest.NewAuthority(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	s := grpctest.Start(t, grpctest.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.Server(t, "kinds.internal")},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}})
	cert, _ := ca.Client(t, "importer")
	o := Options{Target: s.Addr, Namespace: "kinds", ServerName: "kinds.internal", CA: ca.PEM, Certificate: &cert}
	wantAll(t, read(t, o))
	o.Certificate = nil
	_, err := Read(t.Context(), o)
	wantText(t, err, "cannot be reached")
	o.Certificate, o.ServerName = &cert, "another.internal"
	_, err = Read(t.Context(), o)
	wantText(t, err, "cannot be reached")
	dialled := ""
	o.ServerName, o.Dial = "kinds.internal", func(ctx context.Context, addr string) (net.Conn, error) {
		dialled = addr
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	wantAll(t, read(t, o))
	if dialled != s.Addr {
		t.Errorf("dialled %q", dialled)
	}
}

// TestReflectionTells: an error says with which flag a server is reached that speaks TLS or does not, whatever its certificate.
func TestReflectionTells(t *testing.T) {
	ca := grpctest.NewAuthority(t)
	plain := grpctest.Start(t, grpctest.Options{})
	secure := grpctest.Start(t, grpctest.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.Server(t, "kinds.internal")}}})
	_, err := Read(t.Context(), Options{Target: plain.Addr})
	wantText(t, err, "does not speak TLS; connect without it by --plaintext")
	_, err = Read(t.Context(), Options{Target: secure.Addr, Plaintext: true})
	wantText(t, err, "speaks TLS; leave --plaintext out")
	var asked atomic.Value // the name that a client asks for
	strict := grpctest.Start(t, grpctest.Options{TLS: &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		asked.Store(hello.ServerName)
		return nil, errors.New("no") // an alert
	}}})
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", strict.Addr)
	}
	_, err = Read(t.Context(), Options{Target: "kinds.internal:443", Plaintext: true, Dial: dial})
	wantText(t, err, "speaks TLS; leave --plaintext out")
	if asked.Load() != "kinds.internal" {
		t.Errorf("asked for %v", asked.Load())
	}
	_, err = Read(t.Context(), Options{Target: secure.Addr})
	wantText(t, err, "cannot be reached")
	for _, target := range []string{"grpc://host:1", "https://host:1/"} {
		_, err = Read(t.Context(), Options{Target: target})
		wantText(t, err, "without a scheme: write host:1, with --plaintext")
	}
}

// TestNames: no two methods share a name, even if services and methods have long or equal names.
func TestNames(t *testing.T) {
	long := strings.Repeat("Long", 20)
	set := &descriptorpb.FileDescriptorSet{}
	for _, pkg := range []string{"a.v1", "b.v1", "b.v2", "c_d", "c.d", ""} {
		full := func(name string) *string { return proto.String(strings.TrimSuffix("."+pkg, ".") + "." + name) }
		f := &descriptorpb.FileDescriptorProto{Name: proto.String("f" + pkg + ".proto"), Syntax: proto.String("proto3"),
			MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("M")}}}
		if pkg != "" {
			f.Package = proto.String(pkg)
		}
		for _, s := range []string{"S", long} {
			service := &descriptorpb.ServiceDescriptorProto{Name: proto.String(s)}
			for _, m := range []string{"Do", long + "A", long + "B"} {
				service.Method = append(service.Method, &descriptorpb.MethodDescriptorProto{Name: proto.String(m), InputType: full("M"), OutputType: full("M")})
			}
			f.Service = append(f.Service, service)
		}
		set.File = append(set.File, f)
	}
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	plan := read(t, Options{Target: "h:1", Namespace: "n", Protoset: raw})
	if len(plan.Tools) != 36 || len(plan.Refused) != 0 {
		t.Fatalf("%d tools, refused %v", len(plan.Tools), plan.Refused)
	}
	names := ids(plan)
	if len(slices.Compact(slices.Clone(names))) != 36 {
		t.Errorf("names are shared: %v", names)
	}
	one := read(t, Options{Target: "h:1", Namespace: "n", Protoset: raw, Services: []string{"b.v2.S"}, Methods: []string{"Do"}})
	if got := ids(one); len(got) != 1 || got[0] != "v2_S_Do" {
		t.Errorf("alone it is %v; all are %v", got, names)
	}
}

// TestLargeSource plans a thousand methods that all have an Any, in reasonable time.
func TestLargeSource(t *testing.T) {
	f := &descriptorpb.FileDescriptorProto{Name: proto.String("large.proto"), Package: proto.String("large"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/any.proto"}, Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S")}}}
	field := func(name string, n int32, typ string) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Number: proto.Int32(n), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), TypeName: proto.String(typ)}
	}
	for i := range 1000 {
		name := fmt.Sprintf("Message%dWithALongName", i)
		f.MessageType = append(f.MessageType, &descriptorpb.DescriptorProto{Name: proto.String(name), Field: []*descriptorpb.FieldDescriptorProto{
			field("any_of_this_message", 1, ".google.protobuf.Any"), field("next_message_of_all", 2, ".large."+name)}})
		f.Service[0].Method = append(f.Service[0].Method, &descriptorpb.MethodDescriptorProto{Name: proto.String(fmt.Sprintf("Do%d", i)),
			InputType: proto.String(".large." + name), OutputType: proto.String(".large." + name)})
	}
	raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{f}})
	if err != nil {
		t.Fatal(err)
	}
	plan := read(t, Options{Target: "h:1", Protoset: raw})
	if len(plan.Tools) != 1000 || len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "1000 methods") {
		t.Errorf("%d tools, %d warnings, refused %v", len(plan.Tools), len(plan.Warnings), plan.Refused)
	}
	for _, tool := range plan.Tools {
		if len(tool.Manifest) > 5000 {
			t.Fatalf("%s has %d bytes", tool.Name, len(tool.Manifest))
		}
	}
}

// TestLargeMessages: the schemas of large messages are made smaller, and a warning tells it.
func TestLargeMessages(t *testing.T) {
	f := &descriptorpb.FileDescriptorProto{Name: proto.String("deep.proto"), Package: proto.String("deep"), Syntax: proto.String("proto3"),
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("S"), Method: []*descriptorpb.MethodDescriptorProto{
			{Name: proto.String("Do"), InputType: proto.String(".deep.M0"), OutputType: proto.String(".deep.M0")}}}}}
	for i := range 30 {
		m := &descriptorpb.DescriptorProto{Name: proto.String(fmt.Sprintf("M%d", i))}
		for n := range int32(100) {
			field := &descriptorpb.FieldDescriptorProto{Name: proto.String(fmt.Sprintf("field_%d", n)), Number: proto.Int32(n + 1),
				Type: descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
			if n == 0 && i < 29 {
				field.Type, field.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(fmt.Sprintf(".deep.M%d", i+1))
			}
			m.Field = append(m.Field, field)
		}
		f.MessageType = append(f.MessageType, m)
	}
	raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{f}})
	if err != nil {
		t.Fatal(err)
	}
	plan := read(t, Options{Target: "h:1", Protoset: raw, Namespace: "deep"})
	if len(plan.Tools) != 1 || len(plan.Warnings) != 2 {
		t.Fatalf("%d tools, refused %v, warnings %q", len(plan.Tools), plan.Refused, plan.Warnings)
	}
	m := find(t, plan, plan.Tools[0].Name).Manifest
	for i, part := range []struct {
		schema []byte
		limit  int
		what   string
	}{{m.ParametersSchema, source.MaxParameters, "arguments"}, {m.ResultSchema, source.MaxResult, "result"}} {
		if len(part.schema) > part.limit || !strings.Contains(string(part.schema), "field99") || !strings.Contains(plan.Warnings[i], "the schema of its "+part.what+" is larger than") {
			t.Errorf("%d bytes, %q", len(part.schema), plan.Warnings[i])
		}
	}
}
