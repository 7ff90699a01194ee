// Package mcptool executes tools of kind "mcp": a call becomes tools/call at the MCP
// server that the tool came from.
//
// # The binding
//
//	{"server": "files", "tool": "read_file"}
//
// server names one of the MCP servers of the caller's tenant, tool is the server's own
// name of the tool. Address, credentials and limits of the server are in its
// configuration, never in the manifest.
//
// # What is sent
//
// name, arguments, and in _meta: progressToken if a caller is connected to see
// progress, traceparent, and for a tool that declares itself idempotent the caller's
// key as toolkeep/idempotency-key, which another Toolkeep understands.
//
// # What comes back
//
// The result is the CallToolResult without isError and resultType: content,
// structuredContent, _meta and any other members. A NUL and half of a surrogate pair,
// which Toolkeep's JSON text must not contain, become U+FFFD, with a warning. isError makes it E3540 with the first text as the
// message; details.content has the blocks and details.structured_content the structured
// content, together at most 256 KiB.
//
// # Questions
//
// If the caller can answer requests (toolkeep.Asker), the server's requests during the
// call reach it. A caller that also has a method Capabilities() []byte, an MCP client's
// raw capabilities, is declared to the server with these; without it, with all that the
// server's configuration allows.
package mcptool
