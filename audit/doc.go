// Package audit proves and shows what happened: it signs checkpoints of the journal's chains, verifies
// chains against them, and finds entries.
//
// # Checkpoints
//
// Every entry of the journal has a hash that covers the tenant's entry of the same writer before it (see
// toolkeep.ChainHash). A person who can write to the database can compute such hashes again. So one node, the
// leader of Work, signs each minute where the chains are, for every tenant with new entries: a statement
// lists, for each writer, the stretch of its chain since the checkpoint before (number and hash where it
// begins and where it ends, and how many entries lie between) and the digest of the statement before. It is
// signed with Ed25519. The private key is sealed with the installation's sealing key, which is not in the
// database, and only public keys whose private part opens are trusted.
//
// A checkpoint is a document of kind CheckpointKind, whose id is its number; the document of HeadKind says
// which are there and how far each writer came. Both are the tenant's.
//
// # The archive
//
// Entries and checkpoints can be kept for longer in an Archive (see package archive), where they are found and verified
// by the same means.
//
// # What is not proven
//
// Entries since the newest checkpoint are chained and not signed yet. A database that was put back as a whole, or
// cut to an earlier checkpoint with all that came later, verifies: only a digest kept elsewhere shows it.
package audit
