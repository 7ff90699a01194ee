package grpc

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/toolkeep/toolkeep/proto/wellknown"
)

// maxDescriptors is the limit of a binding.
const maxDescriptors = 768 << 10

// roomForAny is how large descriptors may become to cover the possible contents of an Any.
const roomForAny = 128 << 10

// whole holds the files of a source as messages, built once. Options removed by pruning stay
// removed, since that is the same for every method.
type whole map[string]*descriptorpb.FileDescriptorProto

func (w whole) of(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	p := w[f.Path()]
	if p == nil {
		p = protodesc.ToFileDescriptorProto(f)
		w[f.Path()] = p
	}
	return p
}

// descriptors returns the encoded files of a method. short reports that one of its Any may hold
// messages of the source that did not fit.
func (w whole) descriptors(d protoreflect.MethodDescriptor) (raw []byte, short bool) {
	set, holdsAny := w.closure(d, true)
	if raw = encode(set); holdsAny && len(raw) > roomForAny {
		set, _ = w.closure(d, false)
		return encode(set), true
	}
	return raw, false
}

// need is the content of one method's descriptors.
type need struct {
	whole whole
	types map[protoreflect.FullName]bool
	files map[string]protoreflect.FileDescriptor
	any   bool
}

// closure returns the smallest set of files that describes the method: of each file the needed
// types, with imports first. forAny adds the possible contents of an Any.
func (w whole) closure(d protoreflect.MethodDescriptor, forAny bool) (set *descriptorpb.FileDescriptorSet, holdsAny bool) {
	n := &need{whole: w, types: map[protoreflect.FullName]bool{}, files: map[string]protoreflect.FileDescriptor{}}
	n.file(d.ParentFile())
	n.message(d.Input())
	n.message(d.Output())
	holdsAny = n.any
	if holdsAny && forAny {
		n.all(d.ParentFile(), map[string]bool{})
	}
	imports := map[string]map[string]bool{}
	protos := map[string]*descriptorpb.FileDescriptorProto{}
	for name, f := range n.files {
		imports[name] = n.imports(f, d)
		protos[name] = n.prune(f, d, imports[name])
	}
	set = &descriptorpb.FileDescriptorSet{}
	done := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if done[name] || protos[name] == nil {
			return
		}
		done[name] = true
		for _, dep := range protos[name].Dependency {
			add(dep)
		}
		set.File = append(set.File, protos[name])
	}
	for _, name := range slices.Sorted(maps.Keys(protos)) {
		add(name)
	}
	return set, holdsAny
}

func encode(set *descriptorpb.FileDescriptorSet) []byte {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		return nil
	}
	return raw
}

func (n *need) file(f protoreflect.FileDescriptor) {
	if !wellknown.Has(f.Path()) {
		n.files[f.Path()] = f
	}
}

func (n *need) message(d protoreflect.MessageDescriptor) {
	if n.types[d.FullName()] || d.IsPlaceholder() {
		return
	}
	n.types[d.FullName()] = true
	n.any = n.any || d.FullName() == "google.protobuf.Any"
	n.file(d.ParentFile())
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if e := f.Enum(); e != nil && !e.IsPlaceholder() {
			n.types[e.FullName()] = true
			n.file(e.ParentFile())
		}
		if sub := f.Message(); sub != nil {
			n.message(sub)
		}
	}
}

// all adds the messages of a file and of its imports, if they are complete.
func (n *need) all(f protoreflect.FileDescriptor, seen map[string]bool) {
	if seen[f.Path()] || f.IsPlaceholder() || wellknown.Has(f.Path()) {
		return
	}
	seen[f.Path()] = true
	n.each(f.Messages())
	for i := range f.Imports().Len() {
		n.all(f.Imports().Get(i).FileDescriptor, seen)
	}
}

func (n *need) each(list protoreflect.MessageDescriptors) {
	for i := range list.Len() {
		if d := list.Get(i); unusable(d, map[protoreflect.FullName]bool{}) == "" {
			n.message(d)
		}
		n.each(list.Get(i).Messages())
	}
}

// imports returns the files whose types the kept parts of a file use.
func (n *need) imports(f protoreflect.FileDescriptor, m protoreflect.MethodDescriptor) map[string]bool {
	out := map[string]bool{}
	use := func(d protoreflect.Descriptor) {
		if p := d.ParentFile().Path(); p != f.Path() {
			out[p] = true
		}
	}
	var walk func(list protoreflect.MessageDescriptors)
	walk = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			d := list.Get(i)
			walk(d.Messages())
			if !n.types[d.FullName()] {
				continue
			}
			for j := range d.Fields().Len() {
				field := d.Fields().Get(j)
				if e := field.Enum(); e != nil {
					use(e)
				}
				if sub := field.Message(); sub != nil {
					use(sub)
				}
			}
		}
	}
	walk(f.Messages())
	if m.ParentFile().Path() == f.Path() {
		use(m.Input())
		use(m.Output())
	}
	return out
}

func (n *need) prune(f protoreflect.FileDescriptor, m protoreflect.MethodDescriptor, imports map[string]bool) *descriptorpb.FileDescriptorProto {
	p := n.whole.of(f)
	out := &descriptorpb.FileDescriptorProto{Name: p.Name, Package: p.Package, Syntax: p.Syntax, Edition: p.Edition}
	if fs := features(p.GetOptions().GetFeatures()); fs != nil {
		out.Options = &descriptorpb.FileOptions{Features: fs}
	}
	out.Dependency = slices.Sorted(maps.Keys(imports))
	out.MessageType = n.messages(p.MessageType, f.Package())
	out.EnumType = n.enums(p.EnumType, f.Package())
	if m.ParentFile().Path() == f.Path() {
		i := slices.IndexFunc(p.Service, func(s *descriptorpb.ServiceDescriptorProto) bool { return s.GetName() == string(m.Parent().Name()) })
		service := &descriptorpb.ServiceDescriptorProto{Name: p.Service[i].Name}
		for _, x := range p.Service[i].Method {
			if x.GetName() == string(m.Name()) {
				x.Options = nil
				service.Method = append(service.Method, x)
			}
		}
		out.Service = append(out.Service, service)
	}
	return out
}

// messages keeps the needed messages, and empty shells of those that contain one.
func (n *need) messages(list []*descriptorpb.DescriptorProto, scope protoreflect.FullName) []*descriptorpb.DescriptorProto {
	var out []*descriptorpb.DescriptorProto
	for _, p := range list {
		name := scope.Append(protoreflect.Name(p.GetName()))
		kept := &descriptorpb.DescriptorProto{Name: p.Name}
		kept.NestedType, kept.EnumType = n.messages(p.NestedType, name), n.enums(p.EnumType, name)
		kept.Options = messageOptions(p.Options)
		if n.types[name] {
			kept.Field, kept.OneofDecl = p.Field, p.OneofDecl
			for _, f := range kept.Field {
				f.Options = fieldOptions(f.Options)
			}
			for _, o := range kept.OneofDecl {
				o.Options = nil
			}
		} else if len(kept.NestedType)+len(kept.EnumType) == 0 {
			continue
		}
		out = append(out, kept)
	}
	return out
}

func (n *need) enums(list []*descriptorpb.EnumDescriptorProto, scope protoreflect.FullName) []*descriptorpb.EnumDescriptorProto {
	var out []*descriptorpb.EnumDescriptorProto
	for _, p := range list {
		if !n.types[scope.Append(protoreflect.Name(p.GetName()))] {
			continue
		}
		kept := &descriptorpb.EnumDescriptorProto{Name: p.Name, Value: p.Value}
		for _, v := range kept.Value {
			v.Options = nil
		}
		if o := p.GetOptions(); o.GetAllowAlias() || o.GetFeatures() != nil {
			kept.Options = &descriptorpb.EnumOptions{Features: features(o.GetFeatures())}
			if o.GetAllowAlias() {
				kept.Options.AllowAlias = proto.Bool(true)
			}
		}
		out = append(out, kept)
	}
	return out
}

// messageOptions, fieldOptions and features keep the options that affect encoding.
func messageOptions(o *descriptorpb.MessageOptions) *descriptorpb.MessageOptions {
	if o == nil || o.MapEntry == nil && o.Features == nil {
		return nil
	}
	return &descriptorpb.MessageOptions{MapEntry: o.MapEntry, Features: features(o.Features)}
}

func fieldOptions(o *descriptorpb.FieldOptions) *descriptorpb.FieldOptions {
	if o == nil || o.Packed == nil && o.Features == nil {
		return nil
	}
	return &descriptorpb.FieldOptions{Packed: o.Packed, Features: features(o.Features)}
}

func features(fs *descriptorpb.FeatureSet) *descriptorpb.FeatureSet {
	if fs == nil {
		return nil
	}
	out := proto.CloneOf(fs)
	proto.RangeExtensions(out, func(x protoreflect.ExtensionType, _ any) bool { proto.ClearExtension(out, x); return true })
	out.ProtoReflect().SetUnknown(nil)
	return out
}
