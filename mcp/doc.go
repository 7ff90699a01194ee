// Package mcp is the message level of the Model Context Protocol: JSON-RPC 2.0 messages
// whose params and results stay raw, server-sent events, and the names and numbers of
// the revisions 2024-11-05 to 2026-07-28. It knows no tools, servers or clients; those
// are packages face/mcpserver and upstream. Package transport below it carries messages
// to a server.
//
// # Raw members
//
// Forwarded data must stay unchanged: unknown members, member order, number text. So
// nothing is decoded into structs. Parse checks a message once, strictly (RFC 8259,
// UTF-8, no duplicate names, limits), and returns slices of its text. Get, Text,
// Members and Elements read such raw values, Set and Delete return changed copies. They
// rely on that check and only look for brackets and quotes; values from elsewhere must
// pass Check first.
//
// # Outcomes
//
// A faulty message yields an *Error that can be sent to the peer: -32700 for text that
// is not JSON, -32600 for the rest. These errors never quote the peer's text.
//
// # Lost responses
//
// A transport that knows that a request will get no response creates one: Err is set
// with CodeLost, and Message.Lost says why. Such a message is never written.
//
// # Headers of 2026-07-28
//
// HeaderParams reads the x-mcp-header marks of a tool's schema. SetHeaders sets these
// headers, Mcp-Method and Mcp-Name for a client; CheckHeaders checks them for a server.
//
// # More lenient than the specification
//
//   - "params": null counts as no params, "error": null beside a result and
//     "result": null beside an error as absent.
//   - An error response may lack an id: a peer that could not read the request's
//     id sends null or omits it.
//   - Unknown members of the envelope are ignored.
//
// Stricter: params must be an object (as MCP requires), a request's id must not be
// null, an id has at most 1,024 bytes, a batch 1 to 100 messages.
package mcp
