// Package transport carries MCP messages to a server and back, as a client of
// the three transports: lines over a pair of pipes (stdio), streamable HTTP, and
// the HTTP with server-sent events of revision 2024-11-05. Each is an mcp.Conn.
// None of them knows what the messages mean, with these exceptions of HTTP: the
// answer to initialize sets the session and the revision, the notification
// initialized opens the server's own stream, and the version in a request's _meta
// makes it one of 2026-07-28.
//
// # Errors
//
// What Write returns is a *SendError. NothingSent is exact where the connection
// was made by package egress over HTTP/1 and over pipes; elsewhere it is set only
// if it is certain.
//
// A failure that comes after Write returned (the stream broke and cannot be
// resumed, the answer is too large, is not JSON or has another id) ends one
// request and not the connection: Read gives an answer made up here, with Lost
// set. Read's own error means that the connection is of no more use.
//
// # A request over streamable HTTP
//
//	registered ── POST ──┬─ failed ──────────────────────────→ Write's error
//	                     ├─ JSON ────────────────────────────→ answer
//	                     └─ event stream ─┬─ answer on it ───→ answer
//	                                      └─ ends before ─┬─ event id seen, revision before 2026:
//	                                                      │  GET with Last-Event-ID, up to MaxRetries
//	                                                      │  times without a new event
//	                                                      └─ else → Lost
//
// A short POST to a plain http address is made by lean, a small client that works in
// the caller's goroutine; everything else by net/http, with the same transport.
//
// Only an answer to a registered request is handed out; others are counted.
// After its answer a stream is read to its end for at most a second, so that the
// HTTP connection can be used again.
package transport
