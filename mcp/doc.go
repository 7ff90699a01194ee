// Package mcp is the Model Context Protocol at the level of messages: JSON-RPC
// 2.0 messages whose params and results stay raw, server-sent events, the names
// and numbers of the revisions 2024-11-05 to 2026-07-28. It knows no tool, no
// server and no client; those are packages face/mcpserver and upstream. Package
// transport below it carries messages to a server.
//
// # Raw members
//
// What passes through must come out as it came in: unknown members, the order of
// names, the text of numbers. So nothing is decoded into structs. Parse checks a
// message once, strictly (RFC 8259, UTF-8, no name twice anywhere, limits), and
// hands out slices of its text. Get, Text, Members and Elements read such raw
// values, Set and Delete make changed copies. They rely on that check and only
// look for brackets and quotes; what does not come from Parse goes through Check
// first.
//
// # Outcomes
//
// What is wrong with a message is an *Error ready to be sent to the peer: -32700
// for text that is not JSON, -32600 for the rest. Messages of such errors never
// repeat the peer's text.
//
// # Answers that never come
//
// A transport that knows that a request gets no answer makes one up: Err is set
// with CodeLost and Message.Lost says why. Such a message is never written.
//
// # Headers of 2026-07-28
//
// HeaderParams reads the x-mcp-header marks of a tool's schema; SetHeaders is the
// client's side of them and of Mcp-Method and Mcp-Name, CheckHeaders the server's.
//
// # What is more lenient than the specification
//
//   - "params": null counts as no params, "error": null beside a result and
//     "result": null beside an error as absent.
//   - An error answer may have no id: whoever could not read the request's id
//     sends null or leaves it out.
//   - Unknown members of the envelope are ignored.
//
// And what is stricter: params must be an object (as MCP wants), a request's id
// must not be null, an id has at most 1,024 bytes, a batch 1 to 100 messages.
package mcp
