// Package mcp turns the tool definitions of one MCP server, as tools/list gave
// them, into manifests of kind "mcp", compares them with those published before,
// and shows what in them is aimed at the model rather than at its user.
//
// # A definition's way
//
// Each definition is read by itself: whatever is wrong with it refuses that tool
// with the reason and no other. Nothing of it gets lost. inputSchema becomes
// parameters_schema as it is; title, description and icons go where a manifest
// has them; outputSchema becomes the property structuredContent of result_schema;
// all other members stand under annotations.mcp. Definition makes the definition
// out of the manifest again, with the same digest.
//
// # Names
//
// A tool's id is the namespace, a dot and its name. A name that an id cannot have
// is written with letters that it can, followed by a hash of the whole name; the
// name itself stands in the binding. An id keeps its meaning: where it was
// published for one name, no other name gets it.
//
// # Pins
//
// source.digest is the digest of the definition, SHA-256 over its RFC 8785 form.
// A server whose definition has another digest has changed the tool.
//
// # Findings
//
// Scan looks for what a person would not see or would not expect in a
// description. Findings are shown and never repaired, because a repaired text
// would be another one than what the server was accepted with. A finding is no
// proof: high means that there is hardly an honest reason for it, medium that
// a person should read it, low that it is worth knowing.
package mcp
