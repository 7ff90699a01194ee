// Package toolbox reads tools.yaml, the configuration of MCP Toolbox for Databases, and plans those
// of its tools that run one fixed statement on PostgreSQL, MySQL or SQLite. It reads both forms of
// the file: one document with sources, tools and toolsets, and one document for each of them.
//
// Toolbox's text substitution in statements (templateParameters) is not supported: values are
// always bound.
package toolbox
