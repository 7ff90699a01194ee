// Package discover finds tools by what they are for.
//
// It is a fielded BM25 over names, descriptions, parameters, tags, categories,
// capabilities and examples. Names written in camelCase or snake_case are taken
// apart, English words are reduced to their stems, and scripts without spaces
// between words are indexed by pairs of characters. A query that asks for
// several things at once is also scored clause by clause, and the best clause
// counts beside the whole, so that a tool which answers one of five wishes
// perfectly is not buried.
//
// The index holds the latest active version of each tool. It is immutable
// behind one atomic pointer: readers never wait.
package discover
