// Package grpctool carries out tools of kind "grpc": it makes the request message
// from the arguments of a call, sends it through the egress guard, and brings back
// the answer as JSON or says exactly how it failed. It knows a service by its
// descriptors alone; no code is generated.
//
// # The binding
//
// execution.binding of a manifest:
//
//	{ "target": "greeter.example.com:443",
//	  "plaintext": false,
//	  "tls": {"server_name": "greeter.internal", "ca": "-----BEGIN CERTIFICATE-----…"},
//	  "method": "acme.greet.v1.Greeter/SayHello",
//	  "descriptors": "…",
//	  "metadata": {"x-team": "tools"},
//	  "deadline_ms": 5000,
//	  "max_frames": 1000, "max_frame_bytes": 1048576 }
//
// Without plaintext the connection is TLS, with the system's authorities or those
// of tls.ca (at most 64 KiB of PEM). descriptors is a FileDescriptorSet in base64
// that holds the method and every type it needs, at most 768 KiB; the files
// google/protobuf/*.proto that protobuf itself defines are left out, this package
// has them. deadline_ms is the server's deadline where the call's own is later.
//
// # Arguments and results
//
// Both are in protobuf's JSON form (ProtoJSON). The arguments are the members of
// the request message; a method that takes a stream has one argument, messages, a
// list of them; one whose request is no object in JSON, such as a Timestamp, has the
// argument value. A result holds every field without presence, also where it is
// zero; 64-bit numbers are strings. A method that answers a stream gives
//
//	{"messages": […], "complete": true}
//
// and complete is false, with a warning, where a limit cut it off: max_frames
// (default 1,000), the call's MaxBytes, or its time. Of a method that takes and
// gives a stream all messages are sent while the answers are read.
//
// An Any of a type that the descriptors lack is {"@type": …, "value": base64}.
// Extensions of proto2 are neither sent nor shown.
//
// # Credentials
//
// api_key goes into the metadata of its name, bearer and the four kinds of access
// token into authorization as "Bearer …", basic as "Basic …"; mtls is the client
// certificate. They win over the binding's metadata.
//
// # Connections
//
// One HTTP/2 connection serves all calls of one tenant to one target with one TLS
// identity and one allow-list. It is dialled through the egress guard at the
// target's name: no proxy, no service config, no other resolver, no retry by the
// library. After a connection failed or fell silent the next call dials afresh.
package grpctool
