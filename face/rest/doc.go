// Package rest is the HTTP face: BC-2, the registry, retrieval, lifecycle,
// keys, blobs and server-sent events, as contracts/wire.md says.
//
// Two kinds of routes stand side by side. Those that are called rarely take a type
// and give one (route.go): what is sent is held against the schema that the document
// shows of the type. Those that carry results (invoke, one invocation, events, blobs)
// read and write bytes themselves and add their operation to the same document
// (routes.go); tests hold both sides together.
//
// Every request passes package gate first, and its query string is checked in
// query.go.
package rest
