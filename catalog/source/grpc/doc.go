// Package grpc reads gRPC services: every method becomes one tool of kind "grpc", or is refused
// with a reason.
//
// The services come from a server's reflection (v1, or v1alpha without v1), from a
// FileDescriptorSet as written by protoc and buf, or from .proto files. Input is bounded (files,
// bytes, requests), and .proto files are only opened below the given import paths.
//
// # Names
//
// A tool is namespace.Service_Method. If services of different packages share a name, the packages'
// last parts are prepended, then whole packages; a name over 64 characters is cut and gets a hash.
// The method's full name is in the manifest's source.metadata.
//
// # Schemas
//
// Parameters and results are JSON Schema 2020-12 of protobuf's JSON form: members in
// lowerCamelCase, enums by name, 64-bit numbers as integers or strings (strings in results), bytes
// in base64, Timestamp, Duration, FieldMask, Struct, Value, ListValue, Any and the wrappers in
// their own forms. A oneof takes at most one of its members. A proto2 default is mentioned in the
// description only: filled in, it would turn "not given" into "given". A message that is used more
// than once, or within itself, goes into $defs.
//
// # Descriptors
//
// The binding contains only the types its method needs: no comments, no options except those that
// affect the wire or JSON form, no other services. If an Any is among them, all messages of the
// files the service imports are kept, because it may hold any of them; above 128 KiB they are left
// out, with a warning.
package grpc
