package grpctool

import (
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/wellknown"
)

// known are the messages available to every binding: protobuf's own, and the details of
// Google's error model.
var known = func() *protoregistry.Files {
	files := new(protoregistry.Files)
	for _, f := range wellknown.Files() {
		files.RegisterFile(f)
	}
	files.RegisterFile(errdetails.File_google_rpc_error_details_proto)
	return files
}()

// buildFiles builds descriptors from a FileDescriptorSet. why is the fault, for the
// publisher.
func buildFiles(raw []byte) (files *protoregistry.Files, why string) {
	var set descriptorpb.FileDescriptorSet
	// Read options without the extensions compiled into this program.
	if err := (proto.UnmarshalOptions{Resolver: new(protoregistry.Types), RecursionLimit: 200}).Unmarshal(raw, &set); err != nil {
		return nil, "descriptors are not a FileDescriptorSet"
	}
	whole := &descriptorpb.FileDescriptorSet{}
	for _, f := range set.File {
		if wellknown.Has(f.GetName()) {
			// Their messages have special JSON forms, which rely on this program's
			// fields.
			continue
		}
		if p := f.GetPackage(); p == "google.protobuf" || strings.HasPrefix(p, "google.protobuf.") {
			return nil, "the file " + toolkeep.ClipBytes(f.GetName(), 300) + " puts types into google.protobuf, which is protobuf's own"
		}
		whole.File = append(whole.File, f)
	}
	for _, f := range wellknown.Files() {
		whole.File = append(whole.File, protodesc.ToFileDescriptorProto(f))
	}
	files, err := protodesc.NewFiles(whole)
	if err != nil {
		return nil, "descriptors do not fit together: " + toolkeep.ClipBytes(err.Error(), 300)
	}
	return files, ""
}

// unusable returns why messages of the type cannot be read or written, or "".
func unusable(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) string {
	if seen[d.FullName()] {
		return ""
	}
	seen[d.FullName()] = true
	if d.IsPlaceholder() {
		return "the type " + string(d.FullName()) + " is missing"
	}
	if o, ok := d.Options().(*descriptorpb.MessageOptions); ok && o.GetMessageSetWireFormat() {
		return "the type " + string(d.FullName()) + " is a message set, which has no form in JSON"
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if e := f.Enum(); e != nil && e.IsPlaceholder() {
			return "the type " + string(e.FullName()) + " is missing"
		}
		if sub := f.Message(); sub != nil {
			if why := unusable(sub, seen); why != "" {
				return why
			}
		}
	}
	return ""
}

// types resolves the messages of a binding, for Any.
type types struct{ files *protoregistry.Files }

// byURL returns the type after the last slash of a type URL; nil if unknown.
func (t *types) byURL(url string) protoreflect.MessageDescriptor {
	name := protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:])
	for _, files := range []*protoregistry.Files{t.files, known} {
		if files == nil || !name.IsValid() {
			continue
		}
		if d, err := files.FindDescriptorByName(name); err == nil {
			if m, ok := d.(protoreflect.MessageDescriptor); ok && unusable(m, map[protoreflect.FullName]bool{}) == "" {
				return m
			}
		}
	}
	return nil
}

// decode parses bytes as a message. Unknown extensions and fields are dropped.
func decode(d protoreflect.MessageDescriptor, raw []byte) (m *dynamicpb.Message, err error) {
	// The library panics on some invalid bytes, such as a map entry whose key has
	// another type than the map's.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the decoder panicked: %v", r)
		}
	}()
	m = dynamicpb.NewMessage(d)
	return m, proto.UnmarshalOptions{DiscardUnknown: true, Resolver: new(protoregistry.Types)}.Unmarshal(raw, m)
}
