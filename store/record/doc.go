// Package record is the shape in which stores keep changes and calls.
//
// Every store has a feed of rows (sequence number, time, kind, tenant, ref,
// data) and a table of calls whose data column holds what no query asks for.
// This package checks a change, encodes its row, and reads rows back; how rows
// are written is the store's own business. Because the shape is one, a backup
// of one store can be read into another.
//
// A record is a version byte and then fields in a fixed order; new fields are
// added at the end. A decoder that meets the end early leaves the rest zero, one
// that knows fewer fields ignores what follows, so old and new programs read
// each other's rows. Records within a record are preceded by their length for
// the same reason. Rows of the catalogue and of keys are JSON. Rows of items are
// those of events with more behind.
package record
