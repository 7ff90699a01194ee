package datadir

import "path"

// Names of what a data directory holds; Places has a row for each.
const (
	Database     = "toolkeep.db"
	SealKey      = "seal.key"
	AdminKey     = "admin.key"
	Blobs        = "blobs"
	Notes        = "notes"
	Secrets      = "secrets"
	Files        = "files"
	MCP          = "mcp"
	Models       = "models"
	Vectors      = "vectors"
	Outbox       = "outbox"
	Archive      = "archive"
	VaultNonce   = "vault.nonce"
	SealLost     = "seal.lost"
	Spool        = "spool.jsonl"
	PolicyBundle = "policy-*.tar.gz"
	NodeFile     = "node.name"
	Server       = "server.json"
	ServerLog    = "server.log"
	Started      = "started.json"
	lock         = "lock"
)

// MaxBlob is the largest size of one blob in bytes.
const MaxBlob = 100_000_000

// UnfinishedBlob begins the name of a file below Blobs that is still being written. In every
// other folder a name that begins so is as good as any.
const UnfinishedBlob string = "tmp-"

// Kept says whether `toolkeep backup` copies a place.
type Kept string

// Values of Kept.
const (
	Always      Kept = "yes"
	WithSecrets Kept = "with --secrets"
	Never       Kept = "no"
)

// Place is a file in a data directory, or a folder with everything below it. Backup and
// restore, their help, docs/operations.md and the tests of crashes go by these rows.
type Place struct {
	// Name is an element of a path. The Name of files that are Never kept can be a pattern of
	// path.Match.
	Name   string
	Folder bool
	// What says what the place holds.
	What string
	Kept Kept
	// Why says why a place is Never kept, or what to do instead; "" for the others.
	Why string
	// Max is the most bytes of the file, or of one below the folder, that a backup and a
	// restore take; 0 where only the disk bounds it.
	Max int64
	// Missing is what to do after a backup without it; "" where that needs no word.
	Missing string
	// AtStart says that the place is there after the first start with default settings; the
	// others are made on demand.
	AtStart bool
}

// Places are all that a data directory can hold, those of a backup in its order: the
// database is copied first, so that the rest has what its records name.
var Places = []Place{
	{Name: Database, Kept: Always, AtStart: true, What: "tools, keys (as hashes), records, queued calls (SQLite; not with PostgreSQL)"},
	{Name: SealKey, Kept: Always, AtStart: true, Max: 64 << 10, What: "the keys that open the sealed values in the database",
		Missing: "what lies sealed in the backup cannot be read without it"},
	{Name: Blobs, Folder: true, Kept: Always, AtStart: true, Max: MaxBlob, What: "full results that were cut"},
	{Name: Notes, Folder: true, Kept: Always, Max: 4 << 30, What: "notes of the std.note tools"},
	{Name: Outbox, Folder: true, Kept: Always, Max: 4 << 30, What: "dead letters: events that sinks refused"},
	{Name: AdminKey, Kept: WithSecrets, AtStart: true, Max: 64 << 10, What: "the text of the first admin key",
		Missing: "to use a restored server set TOOLKEEP_KEY to a key that you have, or make one with `toolkeep keys recover` before it starts"},
	{Name: Secrets, Folder: true, Kept: WithSecrets, Max: 64 << 10, What: "files that manifests name as file://",
		Missing: "if tools name some as file://, put them back yourself"},

	{Name: Files, Folder: true, Kept: Never, AtStart: true, What: "files of file tools, a folder for each tenant", Why: "copy them yourself"},
	{Name: MCP, Folder: true, Kept: Never, What: "folders in which MCP servers' programs work", Why: "copy them yourself while the server is stopped"},
	{Name: Archive, Folder: true, Kept: Never, What: "the audit's archive, where `audit.archive` names this folder", Why: "copy it yourself, after the database, whose backup has its key"},
	{Name: Models, Folder: true, Kept: Never, What: "embedding models", Why: "`toolkeep models install` puts them there again"},
	{Name: Vectors, Folder: true, Kept: Never, What: "vectors of tools", Why: "the server makes them again"},
	{Name: PolicyBundle, Kept: Never, What: "the policy of `policy.bundle_url` that was taken last, for a start while that does not answer", Why: "the server fetches it again"},
	{Name: VaultNonce, Kept: Never, What: "the nonce of this machine's logins at Vault (aws-ec2)", Why: "Vault accepts it from this machine only; copy it yourself if you may restore on the same one"},
	{Name: SealLost, Kept: Never, What: "an empty file that you create to give up the values that a lost key sealed", Why: "the next start removes it"},
	{Name: Spool, Kept: Never, What: "records that wait while the store is away", Why: "`toolkeep backup` says so where there are some"},
	{Name: NodeFile, Kept: Never, AtStart: true, What: "the node's name among those that share a store (`node.name` sets another)", Why: "a start makes one; a restored server beside the old one needs its own"},
	{Name: Server, Kept: Never, What: "addresses of the running server", Why: "each start writes it"},
	{Name: ServerLog, Kept: Never, What: "log of a server that `toolkeep mcp` started", Why: "it is needed on this machine alone"},
	{Name: Started, Kept: Never, What: "how the latest server was started: by `toolkeep mcp`, or with which flags", Why: "each start writes it"},
	{Name: lock, Kept: Never, AtStart: true, What: "the process that owns the directory", Why: "each start takes it"},
	{Name: Database + "-*", Kept: Never, AtStart: true, What: "SQLite's write-ahead log", Why: "the copy of the database has what is in it"},
	{Name: ".*", Kept: Never, What: "temporary files, also those that an interrupted write or restore left", Why: "nothing reads them"},
}

// PlaceOf returns the row for the name of a file or folder in a data directory.
func PlaceOf(name string) (p Place, ok bool) {
	for _, p := range Places {
		if is, _ := path.Match(p.Name, name); is {
			return p, true
		}
	}
	return Place{}, false
}
