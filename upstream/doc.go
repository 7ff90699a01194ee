// Package upstream holds the MCP servers behind Toolkeep: it starts and watches
// them, speaks to them, and keeps their callers apart.
//
// # Who shares what
//
//	Servers ── server (one Spec) ── slot (one key) ── session ── link ── mcp.Conn
//	                └─ tenantState (log, health, definitions)        └─ process
//
// A session is one conversation with a server, for stdio one process tree. Which
// one a request uses is decided by selectSession in key.go. The tenant is part of every
// key, also for servers that belong to all tenants. A server that may ask its
// client something (capabilities in its Spec) gets a session of its own for every
// downstream session, and for callers without one a session that serves one call at
// a time; a question reaches only whoever made the request that it came up in.
// Everything else that a server asks is refused with -32601, as a client without
// the capability does.
//
// # The life of a session
//
//	(none) ── first request ──→ starting ── handshake ──→ ready ──┬─ idle_stop_s without use → ended
//	   ↑                            │                             ├─ Restart, Set, Stop ────→ ended
//	   └── health lets through ──── failed, lost ←────────────────┘ it ended, does not answer to ping,
//	                                                                no longer knows the session
//
// One session starts at a time for each key; everybody who needs it waits for the
// same start. How often and how soon a lost or failed one is made again is
// health's to say, for each server and tenant.
//
// # Requests
//
// Ids and progress tokens on the wire are the link's own. The link's reader never
// waits: notifications go through a notifier, questions to a goroutine each, answers
// into a channel that has room. What is late, double or for nobody is counted. A
// request is repeated only if its session was dead and nothing of it had left, or
// the server refused it for being of a session that it does not know.
//
// # Revisions
//
// server/discover comes first, initialize after any answer that is not one of
// 2026-07-28; a server that does not survive the question is started again without
// it. Callers see no difference: _meta is written for the server's era, questions
// in a result (input_required) are put to the Peer and the request is sent again,
// subscriptions become subscriptions/listen streams.
//
// # Processes
//
// On Linux every command runs under a reaper, see RunReaper: the tree below it is ended
// as a whole when the session ends, when the command does, and when Toolkeep dies
// in whatever way. If the reaper itself is killed, the command dies with it and
// what is left of the command's own session is ended, but not a process that made
// a session of its own. A process that became another user's cannot be ended.
// Elsewhere a command is the leader of a process group: what leaves the group is
// not ended, and nothing but the end of stdin tells the command that Toolkeep was
// killed.
//
// The command sees PATH, LANG, TERM=dumb, a HOME, TMPDIR and working directory of
// its own below Config.Dir, and what its Spec names. Secrets are resolved when the
// session starts and cleaned out of everything that is logged while it lives.
package upstream
