// Package mcpserver is the MCP face: streamable HTTP for the revisions from
// 2024-11-05 to 2025-11-25, with sessions, and for 2026-07-28, without, on the
// same URLs. It speaks at message level; package mcp reads and writes the
// messages.
//
// A request passes
//
//	the gate: Host, Origin, who asks, body  package gate
//	path -> view                            handler.go, view.go
//	era: session or per-request _meta       legacy.go, modern.go
//	method                                  dispatch.go
//	the view's tools                        view_*.go, tools.go, index.go
//	tools/call                              call.go, answer.go
//	resources, prompts, completion          resources.go
//	all else of one upstream                relay.go
//	JSON or an event stream                 reply.go, stream.go
//
// # Answers
//
// An answer begins undecided. If the result is the first thing to be sent it
// goes out as JSON, written by the goroutine that carried the call out. Progress,
// a question, or Limits.StreamAfter make it an event stream: from then on a
// second goroutine, the pump, writes what stands in the stream's log. Whoever
// adds to a log never waits for a reader; the log is bounded, and what falls out
// of it is progress and notices, never an answer. In a session the log is also
// the event store that Last-Event-ID resumes from.
//
// # Disconnects
//
// A request ends with its connection, unless its client holds an event id of the
// stream and can therefore come back for the answer. Idempotency keys go on as
// the pipeline has it.
//
// # Questions
//
// What a tool asks its caller goes out as a request on the call's own stream up
// to 2025-11-25. In 2026-07-28 the call is parked: the client gets an
// input_required result whose requestState is sealed, and its second request
// wakes the call. See question.go.
//
// # What rides in _meta
//
// Of tools/call: the keys in call.go, all of which begin with toolkeep/; one that
// is not known there is refused. Of its result: toolkeep/invocation_id and
// toolkeep/tool_version, and where they say something toolkeep/cached,
// toolkeep/replayed, toolkeep/truncated, toolkeep/warnings, toolkeep/status (of a
// call that waits or failed). A refusal or failure has isError and toolkeep/code,
// toolkeep/name, toolkeep/class, toolkeep/retryable, toolkeep/retry_after_s,
// toolkeep/details, and the same without the prefix in structuredContent. The
// latter is left out of tools that have an outputSchema, because clients hold it
// against that even in a failure. A JSON-RPC error of ours says the same in data.
//
// # Names
//
// A tool namespace.name is namespace__name, in 64 characters. A prompt of an
// upstream is SERVER__NAME, a resource toolkeep+SERVER:URI; the relay views have
// the upstream's own.
//
// # Locks
//
// In this order, none held while bytes are written or a port is called:
// Server.mu, parked.mu, reply.mu, session.mu, stream.mu.
package mcpserver
