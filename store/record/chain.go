package record

import "github.com/toolkeep/toolkeep"

// Chain computes the hashes of a writer's entries; see toolkeep.ChainHash. Next advances
// it, Undo takes steps back that were not committed, and Commit keeps them. It is for
// the writer's goroutine.
type Chain struct {
	writer int64
	heads  map[string]*toolkeep.ChainHash // by tenant
	undo   []undone
	hasher toolkeep.Hasher
	link   toolkeep.Link
}

type undone struct {
	head *toolkeep.ChainHash
	was  toolkeep.ChainHash
}

// Start begins the chains of a new writer.
func (c *Chain) Start(writer int64) {
	c.writer, c.heads = writer, make(map[string]*toolkeep.ChainHash)
}

// Next returns the hash of the entry with a number and a time, which is 0 if no column has it.
func (c *Chain) Next(e *Encoded, seq, at int64) toolkeep.ChainHash {
	head := c.heads[e.Tenant]
	if head == nil {
		head = new(toolkeep.ChainHash)
		*head = c.hasher.ChainStart(c.writer, e.Tenant)
		c.heads[e.Tenant] = head
	}
	c.undo = append(c.undo, undone{head, *head})
	c.link = toolkeep.Link{Seq: seq, At: at, Kind: chainKind(e.Kind), Tenant: e.Tenant, Ref: e.Ref, Data: e.Data}
	*head = c.hasher.ChainNext(head, &c.link)
	c.link = toolkeep.Link{}
	return *head
}

// Mark returns where the chain is, for Undo.
func (c *Chain) Mark() int { return len(c.undo) }

// Undo goes back to where the chain was.
func (c *Chain) Undo(mark int) {
	for i := len(c.undo) - 1; i >= mark; i-- {
		*c.undo[i].head = c.undo[i].was
	}
	c.undo = c.undo[:mark]
}

// Commit keeps all steps.
func (c *Chain) Commit() { c.undo = c.undo[:0] }

// chainKind is the kind that a hash covers: how a call came to its end does not count, since
// not every store has it.
func chainKind(kind int64) int64 {
	if kind == KindRecord || kind == KindShort {
		return KindEnded
	}
	return kind
}

// Chained returns the stored row of an entry as its hash covers it.
func Chained(r Row, writer int64, hash []byte) toolkeep.Link {
	return toolkeep.Link{Writer: writer, Seq: r.Seq, Hash: hash, Kind: chainKind(r.Kind), At: r.At, Tenant: r.Tenant, Ref: r.Ref, Data: r.Data}
}

// ReadLink reads the entry of a link; nil if its kind is none.
func ReadLink(l toolkeep.Link) (*toolkeep.Entry, error) {
	e, ok, err := DecodeEntry(Row{Seq: l.Seq, At: l.At, Kind: l.Kind, Tenant: l.Tenant, Ref: l.Ref, Data: l.Data}, l.Writer)
	if err != nil || !ok {
		return nil, err
	}
	if e.Call != nil {
		if e.At = e.Call.EndedAt; e.At.IsZero() {
			e.At = e.Call.CreatedAt
		}
	}
	return &e, nil
}
