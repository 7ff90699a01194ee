// Package upstream runs the MCP servers behind Toolkeep: it starts and supervises them,
// speaks MCP to them, and isolates their callers.
//
// # Who shares what
//
//	Servers ── server (one Spec) ── slot (one key) ── session ── link ── mcp.Conn
//	                └─ tenantState (log, health, definitions)        └─ process
//
// A session is one MCP session with a server; over stdio it is one process tree.
// selectSession in key.go decides which session a request uses. The tenant is part of
// every key, also for servers shared by all tenants. A server that may send requests to
// its client (capabilities in its Spec) gets one session per downstream session.
// Callers without a downstream session get a session that serves one call at a time. A
// server request reaches only the caller whose request caused it. Any other server
// request is refused with -32601, as by a client without the capability.
//
// # The life of a session
//
//	(none) ── first request ──→ starting ── handshake ──→ ready ──┬─ idle_stop_s without use → ended
//	   ↑                            │                             ├─ Restart, Set, Stop ────→ ended
//	   └── health lets through ──── failed, lost ←────────────────┘ it ended, does not answer to ping,
//	                                                                no longer knows the session
//
// For each key one session starts at a time, and everyone who needs it waits for that
// start. health decides, per server and tenant, how often and how soon a lost or failed
// session is replaced.
//
// # Requests
//
// The link assigns its own ids and progress tokens on the wire. Its reader never
// blocks: notifications go through a notifier, each server request gets a goroutine,
// and responses go to a buffered channel. Late, duplicate and unmatched messages are
// counted. A request is repeated only if its session was dead before any of it was
// sent, or if the server refused it because it does not know the session.
//
// # Revisions
//
// server/discover comes first; initialize follows any answer that is not of revision
// 2026-07-28. A server that exits on server/discover is started again without it.
// Callers see no difference: _meta is written for the server's era, requests in a
// result (input_required) go to the Peer and the call is sent again, and subscriptions
// become subscriptions/listen streams.
//
// # Processes
//
// On Linux every command runs under a reaper, see RunReaper. The whole process tree is
// ended when the session ends, when the command exits, and when Toolkeep dies for any
// reason. If the reaper itself is killed, the command dies with it and the rest of the
// command's session is killed, but not a process that created its own session. A
// process that changed to another user cannot be ended. On other systems the command
// leads a process group: a process that leaves the group is not ended, and if Toolkeep
// is killed the command only sees its stdin close.
//
// The command sees PATH, LANG, TERM=dumb, its own HOME, TMPDIR and working directory
// below Config.Dir, and what its Spec lists. Secrets are resolved when the session
// starts, and redacted from everything logged while it lives.
package upstream
