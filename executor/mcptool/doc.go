// Package mcptool carries out tools of kind "mcp": a call becomes tools/call at
// the MCP server that the tool came from.
//
// # The binding
//
//	{"server": "files", "tool": "read_file"}
//
// server names one of the MCP servers that the caller's tenant has, tool is the
// server's own name of the tool. How the server is reached, with which credentials
// and within which limits, is the server's configuration and never the manifest's.
//
// # What is sent
//
// name, arguments, and in _meta: progressToken where somebody is connected to see
// progress, traceparent, and of a tool that declares itself idempotent the
// caller's key as toolkeep/idempotency-key, by which another Toolkeep knows it.
//
// # What comes back
//
// The result is the CallToolResult without isError and resultType: content,
// structuredContent, _meta and whatever else the server put there. A NUL, which
// no JSON text of ours may hold, becomes U+FFFD. isError makes it E3540 with the
// first text as the message; details.content has the blocks and
// details.structured_content the structured content, together at most 256 KiB.
//
// # Questions
//
// Where the caller can be asked (toolkeep.Asker), what the server asks during the
// call reaches it. A caller that also has a method Capabilities() []byte, an MCP
// client's raw capabilities, is offered to the server as able to do those; without
// it as able to do all that the server's configuration allows.
package mcptool
