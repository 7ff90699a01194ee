// Package grpc reads gRPC services: every method becomes one tool of kind "grpc",
// or is refused with its reason.
//
// The services come from a server's reflection (v1, or v1alpha where it has no v1),
// from a FileDescriptorSet as protoc and buf write it, or from .proto files. What
// is read is bounded (files, bytes, requests), and .proto files are opened below
// the given import paths alone.
//
// # Names
//
// A tool is namespace.Service_Method. Where two services of different packages have
// the same name, the packages' last parts are put before, then whole packages; a
// name over 64 characters is cut and gets a hash. The method's full name stands in
// the manifest's source.metadata.
//
// # Schemas
//
// Parameters and results are JSON Schema 2020-12 of protobuf's JSON form: members
// in lowerCamelCase, enums by name, 64-bit numbers as whole numbers or strings
// (strings in results), bytes in base64, Timestamp, Duration, FieldMask, Struct,
// Value, ListValue, Any and the wrappers in their own forms. A oneof takes one of
// its members at most. A default of proto2 is told in the description: filled in,
// it would turn "not given" into "given". A message that is used more than once, or
// within itself, stands in $defs.
//
// # Descriptors
//
// The binding carries the types that its method needs and nothing else: no
// comments, no options but those that change the wire or the JSON form, no other
// services. Where an Any is among them, all messages of the files that the service
// imports are kept, because it may hold each of them; over 128 KiB they are left out
// again, with a warning.
package grpc
