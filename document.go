package toolkeep

import "time"

// Bounds of a Document in bytes.
const (
	MaxDocumentKind = 64
	MaxDocumentID   = 512 // of id and tenant each
	MaxDocumentBody = 4 << 20
)

// Expectations of PutDocument and DeleteDocument that are not revisions.
const (
	NoRevision  = 0  // there is none; not for DeleteDocument
	AnyRevision = -1 // any, or none
)

// Document is a small document that a domain keeps in the store, such as the
// definition of an MCP server or a login at one. The domain that owns the kind
// defines the body; the store sees bytes. A body lies unsealed in the database, the
// feed and backups, so a domain seals what is secret in it.
type Document struct {
	Kind   string // such as mcp_server: ^[a-z][a-z0-9_]*$
	Tenant string // its owner; "" for the whole installation
	ID     string // unique within kind and tenant, not empty
	Body   []byte // JSON by convention
	// Revision is 1 for a new document and grows by one with each put; the store sets
	// it. A document that is put again after a delete continues the old count for as
	// long as the store keeps events, so that a writer with an old revision fails.
	Revision  int64
	UpdatedAt time.Time // zero in a put: the store's clock
	UpdatedBy string
}
