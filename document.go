package toolkeep

import "time"

// Limits of a Document in bytes.
const (
	MaxDocumentKind = 64
	MaxDocumentID   = 512 // id and tenant each
	MaxDocumentBody = 4 << 20
)

// Values of Expect in PutDocument and DeleteDocument that are not revisions.
const (
	NoRevision  = 0  // the document must not exist; not for DeleteDocument
	AnyRevision = -1 // any revision, or none
)

// Document is a small document that a domain keeps in the store, such as an MCP
// server's definition or a login at one. The domain that owns the kind defines the
// body; to the store it is bytes. Bodies are not encrypted in the database, the feed
// and backups, so a domain seals the secrets in them.
type Document struct {
	Kind   string // such as mcp_server: ^[a-z][a-z0-9_]*$
	Tenant string // its owner; "" for the whole installation
	ID     string // unique within kind and tenant, not empty
	Body   []byte // JSON by convention
	// Revision is 1 for a new document and incremented by each put; the store sets it.
	// A document put again after a delete continues the old count for as long as the
	// store keeps events, so that a writer with an old revision fails.
	Revision  int64
	UpdatedAt time.Time // zero in a put: the store's clock is used
	UpdatedBy string
}
