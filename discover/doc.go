// Package discover finds tools by what they are for.
//
// It compares words, by a fielded BM25 over names, descriptions, parameters, tags,
// categories, capabilities and examples, and meanings, by vectors of an Embedder. Names
// written in camelCase or snake_case are taken apart, English words are reduced to their
// stems, and scripts without spaces between words are indexed by pairs of characters. A
// query that asks for several things at once is also scored wish by wish, and the best
// wish counts beside the whole, so that a tool which answers one of five wishes perfectly
// is not buried. How tools were used counts beside that (Usage), and questions that led
// to tools before move them among each other's places.
//
// The index holds the latest active version of each tool. It is immutable
// behind one atomic pointer: readers never wait.
package discover
