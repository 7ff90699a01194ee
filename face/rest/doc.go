// Package rest is the HTTP face: BC-2, the registry, retrieval, lifecycle,
// keys, blobs and server-sent events, as contracts/wire.md says.
//
// Two kinds of routes stand side by side. Those that are called rarely are
// huma operations: typed input, validated by the schema that the document
// shows. Those that carry results (invoke, one invocation, events, blobs) read
// and write bytes themselves and add their operation to the same document;
// tests hold both sides together.
//
// Every request passes package gate first, and its query string is checked in
// query.go.
package rest
