package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/wellknown"
)

// Limits of the input.
const (
	MaxProtoset  = 32 << 20
	maxFiles     = 4_000
	maxProto     = 4 << 20 // one .proto file
	maxProtos    = 32 << 20
	maxNameBytes = 1_000
)

// decodeAs decodes descriptors without the extensions linked into this program.
var decodeAs = proto.UnmarshalOptions{Resolver: new(protoregistry.Types), RecursionLimit: 200}

func readSet(raw []byte) (*descriptorpb.FileDescriptorSet, error) {
	if len(raw) > MaxProtoset {
		return nil, invalid("the descriptor set has %d bytes; at most %d are read", len(raw), MaxProtoset)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := decodeAs.Unmarshal(raw, set); err != nil || len(set.File) == 0 {
		return nil, invalid("the file is not a FileDescriptorSet; protoc writes one with --include_imports --include_source_info --descriptor_set_out=FILE, buf with buf build -o FILE")
	}
	return set, nil
}

// build links the files. Missing imports leave gaps, and methods that need them are refused later.
func build(set *descriptorpb.FileDescriptorSet) (*protoregistry.Files, error) {
	if len(set.File) > maxFiles {
		return nil, invalid("the source has %d files; at most %d are read", len(set.File), maxFiles)
	}
	whole, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	for _, f := range set.File {
		if wellknown.Has(f.GetName()) || seen[f.GetName()] {
			continue
		}
		seen[f.GetName()] = true
		if p := f.GetPackage(); p == "google.protobuf" || strings.HasPrefix(p, "google.protobuf.") {
			return nil, invalid("the file %s puts types into google.protobuf, which is protobuf's own", toolkeep.CutBytes(f.GetName(), 300))
		}
		whole.File = append(whole.File, withoutMessageSets(f))
	}
	for _, f := range wellknown.Files() {
		whole.File = append(whole.File, protodesc.ToFileDescriptorProto(f))
	}
	files, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(whole)
	if err != nil {
		return nil, invalid("the files do not fit together: %s", toolkeep.CutBytes(strings.ReplaceAll(err.Error(), "\u00a0", " "), 500))
	}
	return files, nil
}

// withoutMessageSets returns the file with its message sets as messages without fields, which
// unusable knows by an uninterpreted option. The library refuses a file that has one. What extends
// messages is left out: no tool uses it, and a message set's extensions fit no other message.
func withoutMessageSets(f *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	f = proto.CloneOf(f)
	f.Extension = nil
	var walk func(list []*descriptorpb.DescriptorProto)
	walk = func(list []*descriptorpb.DescriptorProto) {
		for _, m := range list {
			m.Extension = nil
			walk(m.NestedType)
			if o := m.GetOptions(); o.GetMessageSetWireFormat() {
				o.MessageSetWireFormat, m.ExtensionRange = nil, nil
				o.UninterpretedOption = append(o.UninterpretedOption, &descriptorpb.UninterpretedOption{
					Name: []*descriptorpb.UninterpretedOption_NamePart{{NamePart: proto.String(messageSetOption), IsExtension: proto.Bool(false)}}, IdentifierValue: proto.String("true")})
			}
		}
	}
	walk(f.MessageType)
	return f
}

const messageSetOption = "message_set_wire_format"

func isMessageSet(o *descriptorpb.UninterpretedOption) bool {
	return len(o.Name) == 1 && o.Name[0].GetNamePart() == messageSetOption
}

// compile reads .proto files and their imports, only below the folders.
func compile(ctx context.Context, names, folders []string) (*descriptorpb.FileDescriptorSet, error) {
	r := &protos{}
	defer r.close()
	for _, dir := range folders {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, invalid("the import path cannot be opened: %s", err)
		}
		r.roots = append(r.roots, root)
	}
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(protocompile.ResolverFunc(r.find)),
		SourceInfoMode: protocompile.SourceInfoStandard, MaxParallelism: 2,
	}
	for _, name := range names {
		if len(name) > maxNameBytes {
			return nil, invalid("the name of a .proto file has %d bytes", len(name))
		}
	}
	linked, err := c.Compile(ctx, names...)
	if err != nil {
		return nil, invalid("the .proto files cannot be read: %s", toolkeep.CutBytes(err.Error(), 1000))
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
		set.File = append(set.File, withComments(f))
	}
	for _, f := range linked {
		add(f)
	}
	return reread(set)
}

// withComments returns the file as a message with comments, which protodesc leaves out.
func withComments(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	p := protodesc.ToFileDescriptorProto(f)
	info := &descriptorpb.SourceCodeInfo{}
	for i := range f.SourceLocations().Len() {
		l := f.SourceLocations().Get(i)
		if l.LeadingComments == "" && l.TrailingComments == "" {
			continue
		}
		loc := &descriptorpb.SourceCodeInfo_Location{Path: l.Path, Span: []int32{int32(l.StartLine), int32(l.StartColumn), int32(l.EndLine), int32(l.EndColumn)}}
		if l.LeadingComments != "" {
			loc.LeadingComments = proto.String(l.LeadingComments)
		}
		if l.TrailingComments != "" {
			loc.TrailingComments = proto.String(l.TrailingComments)
		}
		info.Location = append(info.Location, loc)
	}
	p.SourceCodeInfo = info
	return p
}

// reread converts options with extensions to the form other sources have.
func reread(set *descriptorpb.FileDescriptorSet) (*descriptorpb.FileDescriptorSet, error) {
	raw, err := proto.Marshal(set)
	if err != nil {
		return nil, invalid("the .proto files cannot be read: %s", toolkeep.CutBytes(err.Error(), 1000))
	}
	again := &descriptorpb.FileDescriptorSet{}
	return again, decodeAs.Unmarshal(raw, again)
}

// protos opens .proto files below its folders. It is safe for concurrent use.
type protos struct {
	roots []*os.Root
	files atomic.Int64
	bytes atomic.Int64
}

func (r *protos) close() {
	for _, root := range r.roots {
		root.Close()
	}
}

func (r *protos) find(name string) (protocompile.SearchResult, error) {
	none := protocompile.SearchResult{}
	if path.IsAbs(name) || name != path.Clean(name) || name == ".." || strings.HasPrefix(name, "../") || strings.ContainsRune(name, '\\') {
		return none, fmt.Errorf("%q is not a path below the import paths", toolkeep.CutBytes(name, 300))
	}
	if r.files.Add(1) > maxFiles {
		return none, fmt.Errorf("more than %d files are imported", maxFiles)
	}
	for _, root := range r.roots {
		f, err := root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return none, fmt.Errorf("%s cannot be opened below its import path", toolkeep.CutBytes(name, 300))
		}
		text, err := r.read(f, name)
		f.Close()
		return protocompile.SearchResult{Source: strings.NewReader(text)}, err
	}
	return none, protoregistry.NotFound
}

func (r *protos) read(f *os.File, name string) (string, error) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", toolkeep.CutBytes(name, 300))
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxProto+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s cannot be read", toolkeep.CutBytes(name, 300))
	case len(raw) > maxProto:
		return "", fmt.Errorf("%s is over %d bytes", toolkeep.CutBytes(name, 300), maxProto)
	case r.bytes.Add(int64(len(raw))) > maxProtos:
		return "", fmt.Errorf("the .proto files are over %d bytes together", maxProtos)
	}
	return string(raw), nil
}

// unusable returns why messages of the type have no JSON form, "" if they have one.
func unusable(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) string {
	if seen[d.FullName()] {
		return ""
	}
	seen[d.FullName()] = true
	if d.IsPlaceholder() {
		return "the source lacks the type " + string(d.FullName())
	}
	if o, ok := d.Options().(*descriptorpb.MessageOptions); ok && slices.ContainsFunc(o.GetUninterpretedOption(), isMessageSet) {
		return "the type " + string(d.FullName()) + " is a message set, which has no form in JSON"
	}
	names := map[string]bool{}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if names[f.JSONName()] {
			return fmt.Sprintf("two fields of %s have the JSON name %s", d.FullName(), f.JSONName())
		}
		names[f.JSONName()] = true
		if e := f.Enum(); e != nil && e.IsPlaceholder() {
			return "the source lacks the type " + string(e.FullName())
		}
		if sub := f.Message(); sub != nil {
			if why := unusable(sub, seen); why != "" {
				return why
			}
		}
	}
	return ""
}
