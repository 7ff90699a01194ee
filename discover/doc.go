// Package discover finds tools by what they are for.
//
// It compares words, by a fielded BM25 over names, descriptions, parameters, tags,
// categories, capabilities and examples, and meanings, by vectors of an Embedder. Names
// written in camelCase or snake_case are taken apart, English words are reduced to their
// stems, and scripts without spaces between words are indexed by pairs of characters. A
// query that asks for several things at once is also scored subquery by subquery, and the
// best one counts beside the whole, so that a tool which answers one of five perfectly is
// not buried. How tools were used counts beside that (Usage), and earlier questions that
// led to tools (Example) reorder those tools among their ranks.
//
// The index holds the latest active version of each tool. It is immutable
// behind one atomic pointer: readers never wait.
package discover
