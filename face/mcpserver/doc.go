// Package mcpserver is the MCP face: streamable HTTP for the revisions from 2024-11-05 to
// 2025-11-25, with sessions, and for 2026-07-28, without sessions, on the same URLs. It works at
// message level; package mcp reads and writes the messages.
//
// A request passes
//
//	the gate: Host, Origin, caller, body    package gate
//	path -> view                            handler.go, view.go
//	era: session or per-request _meta       legacy.go, modern.go
//	method                                  dispatch.go
//	the view's tools                        view_*.go, tools.go, index.go
//	tools/call                              call.go, answer.go
//	resources, prompts, completion          resources.go
//	everything else of one upstream         relay.go
//	JSON or an event stream                 reply.go, stream.go
//
// # Answers
//
// The form of an answer is decided late. If the result is the first thing to send, it goes out as
// JSON, written by the goroutine that ran the call. Progress, a question, or Limits.streamAfter
// turn it into an event stream: from then on a second goroutine, the pump, writes the stream's log.
// Appending to a log never waits for a reader; the log is bounded, and only progress and notices
// are dropped from it, never an answer. In a session the log is also the event store that
// Last-Event-ID resumes from.
//
// # Disconnects
//
// A request ends with its connection, unless its client holds an event id of the stream and can
// therefore come back for the answer. Calls with an idempotency key continue as the pipeline
// defines.
//
// # Questions
//
// Up to 2025-11-25 a tool's question to its caller is sent as a request on the call's own stream.
// In 2026-07-28 the call is parked: the client gets an input_required result with a sealed
// requestState, and its second request resumes the call. See input.go.
//
// # Members of _meta
//
// Of tools/call: the keys in call.go, all of which begin with toolkeep/; an unknown one is refused.
// Of its result: toolkeep/invocation_id and toolkeep/tool_version, of a call that ended toolkeep/source (executed, cache or
// replay), and if applicable toolkeep/cached, toolkeep/cache_age_s, toolkeep/replayed, toolkeep/retry_count,
// toolkeep/cost_usd, toolkeep/truncated, toolkeep/fallback, toolkeep/secrets, toolkeep/warnings, toolkeep/status (of a call
// that waits or failed). A refusal or failure has isError and toolkeep/code, toolkeep/name,
// toolkeep/class, toolkeep/retryable, toolkeep/retry_after_s, toolkeep/details, and the same
// without the prefix in structuredContent. Tools with an outputSchema have no such
// structuredContent, because clients validate it against the schema even in a failure. Our JSON-RPC
// errors have the same members in data.
//
// # Names
//
// A tool namespace.name is namespace__name, in 64 characters. A prompt of an upstream is
// SERVER__NAME, a resource toolkeep+SERVER:URI; the relay views use the upstream's own names.
//
// # Locks
//
// In this order, none held while bytes are written or an interface of Config is called: Server.mu,
// parked.mu, reply.mu, session.mu, stream.mu.
package mcpserver
