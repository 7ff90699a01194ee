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

// known are the messages that every binding knows beside its own: protobuf's, and
// the details of Google's error model.
var known = func() *protoregistry.Files {
	files := new(protoregistry.Files)
	for _, f := range wellknown.Files() {
		files.RegisterFile(f)
	}
	files.RegisterFile(errdetails.File_google_rpc_error_details_proto)
	return files
}()

// buildFiles makes descriptors of a FileDescriptorSet. why says what is wrong, for
// whoever publishes.
func buildFiles(raw []byte) (files *protoregistry.Files, why string) {
	var set descriptorpb.FileDescriptorSet
	// Options are read without the extensions that this program happens to know.
	if err := (proto.UnmarshalOptions{Resolver: new(protoregistry.Types), RecursionLimit: 200}).Unmarshal(raw, &set); err != nil {
		return nil, "descriptors are not a FileDescriptorSet"
	}
	whole := &descriptorpb.FileDescriptorSet{}
	for _, f := range set.File {
		if wellknown.Has(f.GetName()) {
			// Their messages have forms of their own in JSON, which rely on this program's fields.
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

// unusable says why messages of the type cannot be read or written, "" if they can.
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

// types finds the messages of a binding, for Any.
type types struct{ files *protoregistry.Files }

// byURL gives the type behind the last slash of a type URL; nil if unknown.
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

// decode reads bytes as a message. Extensions and fields that nobody knows are
// dropped.
func decode(d protoreflect.MessageDescriptor, raw []byte) (m *dynamicpb.Message, err error) {
	// The library panics on some bytes that are no message, such as an entry of a map
	// whose key is of another type than the map's.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the decoder panicked: %v", r)
		}
	}()
	m = dynamicpb.NewMessage(d)
	return m, proto.UnmarshalOptions{DiscardUnknown: true, Resolver: new(protoregistry.Types)}.Unmarshal(raw, m)
}
