// Package record defines the format in which stores keep changes and calls.
//
// Every store has a feed of rows (sequence number, time, kind, tenant, ref, data), a journal of
// ended calls and events, and a table of calls whose data column holds the fields that no query uses. This package
// checks a change, encodes its row, and decodes rows; how rows are written is up to the
// store. Because the format is shared, a backup of one store can be restored into
// another.
//
// A record is a version byte followed by fields in a fixed order; new fields are added
// at the end. A decoder that reaches the end early leaves the remaining fields zero,
// and one that knows fewer fields ignores the rest, so old and new programs can read
// each other's rows. Nested records are length-prefixed for the same reason. Rows of
// the catalogue and of keys are JSON. Rows of items are event rows with additional
// fields.
package record
