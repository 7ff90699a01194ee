// Package rest is the HTTP face: BC-2, the registry, retrieval, lifecycle,
// keys, blobs and server-sent events, as contracts/wire.md says.
//
// Two kinds of routes stand side by side. Those that are called rarely are
// huma operations: typed input, validated by the schema that the document
// shows. Those that carry results (invoke, one invocation, events, blobs) read
// and write bytes themselves and add their operation to the same document;
// tests hold both sides together.
//
// A request passes these gates in order:
//
//	request id, Host, Origin, header size   guard.go
//	who asks                                authenticate in guard.go
//	body: size, time, encoding              body.go
//	the handler
//	problem or answer, compressed           problem.go, send.go
package rest
