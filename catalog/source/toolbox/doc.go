// Package toolbox reads the configuration of MCP Toolbox for Databases, tools.yaml,
// and plans the tools of it that run one fixed statement on PostgreSQL, MySQL or
// SQLite. It reads both forms of the file: one document with sources, tools and
// toolsets, and one document for each of them.
//
// What Toolbox does with the text of statements (templateParameters) has no place
// here: values are bound and never put into text.
package toolbox
