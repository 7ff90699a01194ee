package toolkeep

import "time"

// Bounds of an Item in bytes.
const (
	MaxItemKind = 64
	MaxItemID   = 512 // of id and tenant each
	MaxItemBody = 4 << 20
)

// Expectations of PutItem and DropItem that are no revision.
const (
	NoRevision  = 0  // there is none; not for DropItem
	AnyRevision = -1 // whatever there is
)

// Item is a small document that a domain keeps in the store: the definition of an
// MCP server, a login at one. The domain that owns the kind gives the body its
// form; the store sees bytes. Nothing secret is put in unsealed: bodies lie in the
// database, the feed and backups as they are, and whoever reads those reads them.
type Item struct {
	Kind   string // what it is, such as mcp_server: ^[a-z][a-z0-9_]*$
	Tenant string // whose it is; "" none's, or everyone's
	ID     string // unique within kind and tenant, not empty
	Body   []byte // JSON by convention
	// Revision is 1 when the item is made and one more with each put; the store sets
	// it. An item made anew after a drop goes on with the count of the old one, as
	// long as the store remembers that (as long as it keeps events), so that whoever
	// knew the old one is told.
	Revision  int64
	UpdatedAt time.Time // zero in a put: the store's clock
	UpdatedBy string
}
