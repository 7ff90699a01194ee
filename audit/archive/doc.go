// Package archive keeps the entries of the journal, and the checkpoints that sign them, in files for longer than the
// store does.
//
// # Segments
//
// The node that leads Work follows the journal as a sink does (see package outbox): it has a cursor for each writer. What
// comes after it is written into segments. A segment is one file with consecutive entries of one writer, one tenant and
// one day (UTC, by its first entry), or with consecutive checkpoints of one tenant:
//
//	DIR/TENANT/2026-11-30/j-WRITER-FIRST-LAST.seg
//	DIR/TENANT/2026-11-30/c-FIRST-LAST.seg
//
// TENANT is datadir.TenantFolder. Entries are written once the oldest of them waits for Config.After, or when there
// are many, with the bytes that their hashes cover.
//
// A segment is written under another name, synced, renamed and read back; then the cursor moves. A crash between these
// steps repeats entries in another segment and loses none: a reader skips the numbers that it has had. A moment in which
// two nodes lead does the same.
//
// # Format
//
// A file is the eight bytes "TKARCH1\n", the length of the header (4 bytes, big-endian), the header as JSON, and the
// entries: each member after its length, zstd, then AES-256-GCM with a random nonce before it. What comes before the entries is
// additional data, so a header cannot be changed or put before others. The data key of a segment is HKDF-SHA256 of the
// archive's key and of the salt in the header. The archive's key is a document of KeyKind, sealed with the
// installation's sealing key; a rotation of that one seals it again.
//
// # Retention
//
// The store removes an entry that is not archived only Config.Wait after its time (sqlite.Config.ArchiveWait). Health tells
// when retention waits, and when it had to remove what was not archived. Segments are removed Config.Keep after their
// day.
package archive
