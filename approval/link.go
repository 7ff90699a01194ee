package approval

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// LinkKind is the kind of the document of a Link. Its id is the SHA-256 of the token in hex. It is of no
// tenant, since a token names none; the Link says whose it is.
const LinkKind = "approval_link"

// MaxLinks bounds the links of one call.
const MaxLinks = 20

const (
	linkPrefix = "tkd_"
	linkBytes  = 32
)

// eventLinked is the record of a link that was made.
const eventLinked = "ai.agent.tool.approval.link_made"

// Link lets who has its token decide one call once, as Decider and until a time.
type Link struct {
	Tenant  string    `json:"tenant"`
	Call    string    `json:"call"`
	Decider Party     `json:"decider"`
	Maker   *Party    `json:"maker,omitempty"` // who made it for Decider; nil if that is the same
	Until   time.Time `json:"until"`

	ID       string `json:"-"`
	Revision int64  `json:"-"`
}

// Party is a principal as a Link keeps it. It is looked up again when the link is used.
type Party struct {
	Subject   string   `json:"subject"`
	OnBehalf  string   `json:"on_behalf,omitempty"`
	Chain     []string `json:"chain,omitempty"`
	Method    string   `json:"method"`
	KeyID     string   `json:"key_id,omitempty"`
	Roles     []string `json:"roles,omitempty"`
	Scope     []string `json:"scope,omitempty"`
	Workspace string   `json:"workspace,omitempty"`
}

func partyOf(p *toolkeep.Principal) Party {
	return Party{Subject: p.Subject, OnBehalf: p.OnBehalf, Chain: p.Chain, Method: p.Method, KeyID: p.KeyID, Roles: p.Roles, Scope: p.Scope, Workspace: p.Workspace}
}

// Principal returns the party as it was when the link was made, without permissions.
func (a *Party) Principal(tenant string) *toolkeep.Principal {
	return &toolkeep.Principal{Subject: a.Subject, OnBehalf: a.OnBehalf, Chain: a.Chain, Method: a.Method, KeyID: a.KeyID, Roles: a.Roles, Scope: a.Scope,
		Workspace: a.Workspace, Tenant: tenant}
}

// Name names the link in records: 16 hex digits of its id, of which no token can be made.
func (l *Link) Name() string { return l.ID[:min(16, len(l.ID))] }

// Ref names the call that the link decides.
func (l *Link) Ref() toolkeep.CallRef { return toolkeep.CallRef{Tenant: l.Tenant, ID: l.Call} }

// Link makes a link by which decider decides the request, and what stores it. maker is who asks for it.
// It ends with the request, and with what either of them came with. Of the token only a hash is stored.
func (q *Request) Link(maker, decider *toolkeep.Principal, until, now time.Time) (token string, l *Link, changes []toolkeep.Change) {
	for _, end := range [...]time.Time{q.ExpiresAt, maker.Until, decider.Until} {
		if !end.IsZero() && end.Before(until) {
			until = end
		}
	}
	secret := make([]byte, linkBytes)
	_, _ = rand.Read(secret) // never fails
	token = linkPrefix + base64.RawURLEncoding.EncodeToString(secret)
	l = &Link{Tenant: q.Tenant, Call: q.ID, Decider: partyOf(decider), Until: until, ID: linkID(token)}
	more := map[string]any{"link": l.Name(), "decider": decider.Subject, "made_by": maker.Subject, "link_until": until.UTC().Format(time.RFC3339)}
	for name, person := range map[string]string{"made_on_behalf_of": maker.OnBehalf, "decider_on_behalf_of": decider.OnBehalf} {
		if person != "" {
			more[name] = person
		}
	}
	if maker != decider {
		by := partyOf(maker)
		l.Maker = &by
	}
	body, err := json.Marshal(l)
	if err != nil {
		panic(err) // a struct of texts and times
	}
	return token, l, []toolkeep.Change{
		toolkeep.PutDocument{Document: toolkeep.Document{Kind: LinkKind, ID: l.ID, Body: body, UpdatedBy: maker.Subject}, Expect: toolkeep.NoRevision},
		q.event(eventLinked, now, more),
	}
}

// Used is what ends the link; it is committed with the decision, so that a link decides once.
func (l *Link) Used() toolkeep.Change {
	return toolkeep.DeleteDocument{Kind: LinkKind, ID: l.ID, Expect: l.Revision, By: l.Decider.Subject}
}

// linkID returns the id of a token's document, "" for what is no token.
func linkID(token string) string {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, linkPrefix))
	if err != nil || len(raw) != linkBytes || !strings.HasPrefix(token, linkPrefix) {
		return ""
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// errNoLink is the one answer for a token that is unknown, used, expired or malformed.
var errNoLink = errors.New("there is no such link")

// Link returns the link of a token as it is stored now, ErrNotFound for a token that was used, is over, or
// is none. What this node has not heard of is not asked of the store: anybody can send tokens.
func (b *Book) Link(ctx context.Context, token string) (*Link, error) {
	id := linkID(token)
	b.mu.RLock()
	_, known := b.links[id]
	b.mu.RUnlock()
	if !known {
		return nil, errors.Join(toolkeep.ErrNotFound, errNoLink)
	}
	d, err := b.c.Store.Document(ctx, LinkKind, "", id)
	if err != nil {
		return nil, err
	}
	l, err := decodeLink(d)
	if err == nil && !b.c.Clock().Before(l.Until) {
		err = errors.Join(toolkeep.ErrNotFound, errNoLink)
	}
	return l, err
}

// Links counts the links of a call that were not used.
func (b *Book) Links(ref toolkeep.CallRef) (n int) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, l := range b.links {
		if l.Ref() == ref {
			n++
		}
	}
	return n
}

func decodeLink(d toolkeep.Document) (*Link, error) {
	l := &Link{ID: d.ID, Revision: d.Revision}
	if err := json.Unmarshal(d.Body, l); err != nil {
		return nil, err
	}
	if l.Tenant == "" || l.Call == "" || l.Decider.Subject == "" || d.Tenant != "" {
		return nil, errors.New("it is incomplete")
	}
	return l, nil
}

func (b *Book) putLink(d toolkeep.Document) {
	l, err := decodeLink(d)
	if err != nil {
		b.c.Log.Error("a stored decision link cannot be read and decides nothing", "error", err)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.links[l.ID] = l
}

// deadLinks returns what forgets links that are over, and those of calls that were decided or ended otherwise. b.mu is
// held.
func (b *Book) deadLinks(now time.Time) (forget []toolkeep.Change) {
	for id, l := range b.links {
		if q := b.requests[l.Ref()]; !now.Before(l.Until) || q == nil || q.State != Pending {
			forget = append(forget, toolkeep.DeleteDocument{Kind: LinkKind, ID: id, Expect: toolkeep.AnyRevision})
		}
	}
	return forget
}
