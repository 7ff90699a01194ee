package grpctool

import (
	"encoding/base64"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
)

// descriptors returns the message with every type, and a type resolver.
func descriptors(t testing.TB) (protoreflect.MessageDescriptor, *types) {
	t.Helper()
	set, err := grpctest.Set()
	if err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := files.FindDescriptorByName("acme.kinds.v1.Everything")
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.MessageDescriptor), &types{files: files}
}

// both returns the library's own JSON options with the same types.
func both(ts *types) (protojson.UnmarshalOptions, protojson.MarshalOptions) {
	r := resolver{dynamicpb.NewTypes(ts.files), ts}
	return protojson.UnmarshalOptions{Resolver: r}, protojson.MarshalOptions{Resolver: r, EmitUnpopulated: false, EmitDefaultValues: true}
}

type resolver struct {
	protoregistry.ExtensionTypeResolver
	types *types
}

func (r resolver) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	return r.FindMessageByURL(string(name))
}

func (r resolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if d := r.types.byURL(url); d != nil {
		return dynamicpb.NewMessageType(d), nil
	}
	return nil, protoregistry.NotFound
}

// compare parses a text as a message with this package and the library, and back, and
// expects the same. In known differences this package is stricter.
func compare(t *testing.T, d protoreflect.MessageDescriptor, ts *types, text []byte) {
	tree, err := canon.ParseObject(text, canon.Limits{Bytes: 1 << 16})
	if err != nil {
		return
	}
	text = canon.Append(nil, tree) // canon reads an empty text as {}
	w := &writer{types: ts}
	mine, bad := w.message(d, tree, "")
	read, write := both(ts)
	theirs := dynamicpb.NewMessage(d)
	failed := read.Unmarshal(text, theirs)
	if bad != nil {
		return // stricter, or as strict
	}
	if failed != nil {
		t.Fatalf("taken here and refused by the library (%v): %s", failed, text)
	}
	if !proto.Equal(mine, theirs) {
		t.Fatalf("read as\n%v, by the library as\n%v: %s", mine, theirs, text)
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(mine)
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(d, raw)
	if err != nil {
		t.Fatal(err)
	}
	show := &shower{types: ts, left: 1 << 24}
	shown, err := show.message(again, maxDepth)
	lib, failed := write.Marshal(theirs)
	if err != nil {
		if failed == nil {
			t.Fatalf("not shown (%v), but by the library: %s", err, lib)
		}
		return
	}
	if canon.Check(shown, 1000) != nil {
		t.Fatalf("no JSON: %v", canon.Check(shown, 1000))
	}
	if failed != nil {
		return // a field mask's path is returned as received
	}
	// Both texts parse to equal messages.
	back := dynamicpb.NewMessage(d)
	if err := read.Unmarshal(canon.Append(nil, shown), back); err != nil {
		t.Fatalf("the library cannot read what is shown: %v\n%s", err, canon.Append(nil, shown))
	}
	if !proto.Equal(back, theirs) && !hasNaN(theirs) {
		t.Fatalf("shown as\n%s, by the library as\n%s", canon.Append(nil, shown), lib)
	}
	parsed, err := canon.Parse(lib, canon.Limits{Bytes: 1 << 24, Depth: 1000})
	if err == nil && string(canon.Append(nil, parsed)) != string(canon.Append(nil, shown)) {
		t.Fatalf("shown as\n%s, by the library as\n%s", canon.Append(nil, shown), canon.Append(nil, parsed))
	}
}

func hasNaN(m protoreflect.Message) bool {
	found := false
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if k := f.Kind(); (k == protoreflect.DoubleKind || k == protoreflect.FloatKind) && !f.IsList() && !f.IsMap() {
			found = found || math.IsNaN(v.Float())
		}
		return !found
	})
	return found
}

var seeds = []string{everything, `{}`, `{"aDouble":"NaN"}`, `{"aFloat":"-Infinity","aDouble":1e-7}`, `{"any":{}}`, `{"value":null,"null":null}`,
	`{"value":{"a":[{"b":1e21}]}}`, `{"mask":""}`, `{"at":"2026-01-31T12:00:00+05:30"}`, `{"within":"0s"}`, `{"someBytes":"_-8"}`, `{"a_string":"x"}`,
	`{"anInt64":1.0,"aUint32":1e3,"anInt32":"-0","aUint64":"-0"}`, `{"colour":2,"byLong":{"10":"x"}}`, `{"any":{"@type":"/google.protobuf.Any","value":{}}}`,
	`{"any":{"@type":"x/google.protobuf.Value","value":[1]}}`, `{"any":{"@type":"x/google.protobuf.Empty"}}`, `{"maybe":null,"text":null,"wrappedLong":null}`}

// TestAgainstLibrary compares with protobuf's own JSON.
func TestAgainstLibrary(t *testing.T) {
	d, ts := descriptors(t)
	for _, s := range seeds {
		compare(t, d, ts, []byte(s))
	}
}

func FuzzMessage(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	d, ts := descriptors(f)
	f.Fuzz(func(t *testing.T, text []byte) { compare(t, d, ts, text) })
}

// FuzzAnswer: any upstream bytes yield JSON or an error.
func FuzzAnswer(f *testing.F) {
	d, ts := descriptors(f)
	w := &writer{types: ts}
	for _, s := range seeds {
		tree, err := canon.ParseObject([]byte(s), canon.Limits{})
		if err != nil {
			f.Fatal(err)
		}
		m, bad := w.message(d, tree, "")
		if bad != nil {
			f.Fatalf("%s: %v at %s", s, bad, bad.at)
		}
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if weigh(d, raw, 100_000) < 0 {
			return
		}
		m, err := decode(d, raw)
		if err != nil {
			return
		}
		v, err := (&shower{types: ts, left: 1 << 20}).message(m, maxDepth)
		if err != nil {
			return
		}
		if err := canon.Check(v, 1000); err != nil {
			t.Fatalf("%v: %x", err, raw)
		}
		if len(canon.Append(nil, v)) > 3<<20 {
			t.Fatalf("the result has %d bytes in spite of the limit", len(canon.Append(nil, v)))
		}
	})
}

// FuzzBinding builds descriptors from any bytes.
func FuzzBinding(f *testing.F) {
	all, err := grpctest.Set()
	if err != nil {
		f.Fatal(err)
	}
	set := proto.CloneOf(all)
	for _, file := range set.File {
		if file.SourceCodeInfo = nil; len(file.Dependency) > 0 {
			continue
		}
		raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{file}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		files, why := buildFiles(raw)
		if why != "" {
			return
		}
		files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
			for i := range fd.Messages().Len() {
				d := fd.Messages().Get(i)
				if unusable(d, map[protoreflect.FullName]bool{}) != "" {
					continue
				}
				m := dynamicpb.NewMessage(d)
				if _, err := (&shower{types: &types{files}, left: 1 << 20}).message(m, maxDepth); err == errLarge {
					t.Fatalf("an empty %s is large: %s", d.FullName(), base64.StdEncoding.EncodeToString(raw))
				}
			}
			return true
		})
	})
}
