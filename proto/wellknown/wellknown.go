// Package wellknown lists the files that protobuf itself defines. The importer of
// gRPC services leaves them out of what it publishes and the executor puts them back,
// so both must mean the same ones.
package wellknown

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Files gives them as this program was built with, google/protobuf/any.proto and so on.
func Files() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{
		anypb.File_google_protobuf_any_proto, apipb.File_google_protobuf_api_proto, descriptorpb.File_google_protobuf_descriptor_proto,
		durationpb.File_google_protobuf_duration_proto, emptypb.File_google_protobuf_empty_proto,
		fieldmaskpb.File_google_protobuf_field_mask_proto, sourcecontextpb.File_google_protobuf_source_context_proto,
		structpb.File_google_protobuf_struct_proto, timestamppb.File_google_protobuf_timestamp_proto,
		typepb.File_google_protobuf_type_proto, wrapperspb.File_google_protobuf_wrappers_proto,
	}
}

// Has tells whether the file of that path is one of them.
func Has(path string) bool {
	return slices.ContainsFunc(Files(), func(f protoreflect.FileDescriptor) bool { return f.Path() == path })
}
