// Package transport is the client side of the three MCP transports: lines over a pair
// of pipes (stdio), streamable HTTP, and the HTTP with server-sent events of revision
// 2024-11-05. Each is an mcp.Conn. They do not interpret messages, with these
// exceptions of HTTP: the response to initialize sets the session and the revision, the
// notification initialized opens the server's own stream, and the version in a
// request's _meta makes it a request of 2026-07-28.
//
// # Errors
//
// Write returns a *SendError. NothingSent is exact over pipes, and over HTTP/1 if
// package egress made the connection; elsewhere it is set only if it is certain.
//
// A failure after Write has returned (the stream broke and cannot be resumed; the
// response is too large, not JSON or has another id) ends one request, not the
// connection: Read returns a response created here, with Lost set. Read's own error
// means that the connection is unusable.
//
// # A request over streamable HTTP
//
//	registered ── POST ──┬─ failed ──────────────────────────→ Write's error
//	                     ├─ JSON ────────────────────────────→ answer
//	                     └─ event stream ─┬─ answer on it ───→ answer
//	                                      └─ ends before ─┬─ event id seen, revision before 2026:
//	                                                      │  GET with Last-Event-ID, up to maxRetries
//	                                                      │  times without a new event
//	                                                      └─ else → Lost
//
// A short POST to a plain http address is made by lean, a small client that works in
// the caller's goroutine; everything else by net/http, with the same transport.
//
// Only a response to a registered request is delivered; others are counted. After its
// response a stream is read for at most a second, so that the HTTP connection can be
// reused.
package transport
