// Package grpctool executes tools of kind "grpc": it builds the request message from
// the arguments, sends it through the egress guard, and returns the response as JSON or
// exactly how the call failed. It works from a service's descriptors; no code is
// generated.
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
// Without plaintext the connection uses TLS, with the system's authorities or those of
// tls.ca (at most 64 KiB of PEM). descriptors is a base64 FileDescriptorSet with the
// method and every type it needs, at most 768 KiB, without the google/protobuf/*.proto
// files that protobuf itself defines. deadline_ms is the server's deadline if the
// call's own is later.
//
// # Arguments and results
//
// Both are in ProtoJSON. The arguments are the members of the request message. A method
// with a request stream has one argument, messages, a list of them; one whose request
// is not a JSON object, such as a Timestamp, has the argument value. A result includes
// every field without presence, even if zero; 64-bit numbers are strings. A method with
// a response stream returns
//
//	{"messages": […], "complete": true}
//
// complete is false, with a warning, if a limit cut it off: max_frames (default 1,000),
// the call's MaxBytes, or its time. With streams in both directions, all messages are
// sent while the responses are read.
//
// An Any of a type that the descriptors lack is {"@type": …, "value": base64}.
// Extensions of proto2 are neither sent nor shown.
//
// # Credentials
//
// api_key goes into the metadata of its name; bearer and the four kinds of access token
// into authorization as "Bearer …"; basic as "Basic …"; mtls is the client certificate.
// Credentials override the binding's metadata.
//
// # Connections
//
// One HTTP/2 connection serves all calls of one tenant to one target with the same TLS
// identity and allow-list. It is dialled through the egress guard by the target's name:
// no environment proxy, no service config, no other resolver, no retry by the library.
// After a connection failed or stopped responding, the next call dials again.
package grpctool
