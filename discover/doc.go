// Package discover finds tools by purpose.
//
// It compares words, by a fielded BM25 over names, descriptions, parameters, tags, categories,
// capabilities and examples, and meanings, by vectors of an Embedder. Names in camelCase or
// snake_case are split, English words are stemmed, and scripts without spaces between words are
// indexed by character pairs. A query with several requests is also scored per subquery, and the
// best one counts in addition to the whole, so that a tool that fits one of five requests perfectly
// is not buried. Usage counts in the score (Usage), and earlier queries that led to tools (Example)
// reorder those tools among their ranks.
//
// The index holds the latest active version of each tool. It is immutable behind one atomic
// pointer: readers never wait.
package discover
