// Package mcp turns the tool definitions of one MCP server, as returned by tools/list, into
// manifests of kind "mcp", compares them with those published before, and reports text that is
// aimed at the model instead of its user.
//
// # Definitions
//
// Each definition is read separately: a fault refuses that tool only, with a reason. Nothing of a
// definition is lost. inputSchema becomes parameters_schema unchanged; title, description and icons
// go to their manifest fields; outputSchema becomes the property structuredContent of
// result_schema; all other members go to annotations.mcp. Definition restores the definition from
// the manifest, with the same digest.
//
// # Names
//
// A tool's id is the namespace, a dot and its name. A name with characters not allowed in an id is
// rewritten, followed by a hash of the full name; the name itself is in the binding. An id keeps
// its meaning: once published for one name, no other name gets it.
//
// # Pins
//
// source.digest is the digest of the definition, SHA-256 over its RFC 8785 form. If the digest
// differs, the server has changed the tool.
//
// # Findings
//
// Scan looks for what a person would not see or not expect in a description. Findings are reported
// and never repaired, because a repaired text would differ from what was accepted from the server.
// A finding is not a proof: high means that there is hardly a legitimate reason for it, medium that
// a person should read it, low that it is worth knowing.
package mcp
