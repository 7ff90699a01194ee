package catalog

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/promptscan"
)

// KindAbout is the kind of the documents that hold what the server or API behind a namespace's tools says of itself. The
// id is the namespace, the tenant the tools' owner. It is beside the manifests, so that a change of it is no change of a
// tool.
const KindAbout = "catalog_about"

// MaxAbout is the length of an about text in bytes.
const MaxAbout = 400

var namespacePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

type aboutKey struct{ namespace, tenant string }

type aboutBody struct {
	Text string `json:"text"`
}

// AboutText makes an about text of what a server or API says of itself: its title, then the beginning of its texts, in
// one line of at most MaxAbout bytes. Each is inspected as descriptions are: one that addresses a model or hides
// characters is left out, and found says what was found last.
func AboutText(parts ...string) (text string, found *promptscan.Finding) {
	var list []string
	for _, part := range parts {
		part = strings.Join(strings.Fields(toolkeep.CutBytes(part, 64<<10)), " ")
		grave := false
		for _, f := range append(promptscan.Characters(part), promptscan.Instructions(part)...) {
			if f.Severity == promptscan.High {
				grave, found = true, &f
			}
		}
		if part = strings.TrimRight(part, "."); part != "" && !grave {
			list = append(list, part)
		}
	}
	text = strings.Join(list, ". ")
	if len(text) <= MaxAbout {
		return text, found
	}
	text = toolkeep.CutBytes(text, MaxAbout)
	if i := strings.LastIndexByte(text, ' '); i > MaxAbout/2 {
		text = text[:i]
	}
	return text, found
}

// About returns what the server or API behind a tool says of itself, for search; "" for nothing.
func (s *Snapshot) About(t *toolkeep.Tool) string {
	namespace, _, _ := strings.Cut(t.ID, ".")
	return s.abouts[aboutKey{namespace, t.Tenant}]
}

// SetAbout keeps what the server or API behind a namespace's tools says of itself, for search; "" drops it. shared is for
// tools of all tenants. It returns when this catalogue shows it.
//
// Errors: E3201 without catalog:publish, or for shared without catalog:admin; E3301 for another namespace than
// ^[a-z][a-z0-9-]{0,31}$, and for a text that addresses a model or hides characters; E3003, E3963, E3965 as Publish.
func (c *Catalog) SetAbout(ctx context.Context, p *toolkeep.Principal, namespace, text string, shared bool) error {
	if err := c.mayPublish(p, PublishOptions{Shared: shared}); err != nil {
		return err
	}
	if !namespacePattern.MatchString(namespace) {
		return toolkeep.NewError(toolkeep.InvalidParameters, "%q is no namespace: it is a lower-case letter and up to 31 lower-case letters, digits and hyphens after it", toolkeep.Clip(namespace, 100))
	}
	text, found := AboutText(text)
	if found != nil {
		return toolkeep.NewError(toolkeep.InvalidParameters, "the text about %s is not kept: %s (%s)", namespace, found.Message, found.Text)
	}
	if !c.running() {
		return unreadable(errors.New("catalog: SetAbout without Start"))
	}
	key := ownedBy(p, namespace, shared)
	if err := c.catchUp(ctx); err != nil {
		return unreadable(err)
	}
	if c.Snapshot().abouts[key] == text {
		return nil
	}
	change := toolkeep.Change(toolkeep.DeleteDocument{Kind: KindAbout, Tenant: key.tenant, ID: namespace, Expect: toolkeep.AnyRevision, By: p.Subject})
	if text != "" {
		body, err := json.Marshal(aboutBody{text})
		if err != nil {
			return err
		}
		change = toolkeep.PutDocument{Expect: toolkeep.AnyRevision, Document: toolkeep.Document{Kind: KindAbout, Tenant: key.tenant, ID: namespace, Body: body, UpdatedBy: p.Subject}}
	}
	return c.apply(ctx, []toolkeep.Change{change})
}

// documents is an optional ability of a Store that has an order of versions before the feed.
type documents interface {
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// say takes one about text, and returns whose it is.
func (s *Snapshot) say(d *toolkeep.Document) aboutKey {
	var body aboutBody
	if err := json.Unmarshal(d.Body, &body); err != nil {
		body.Text = "" // a later version's
	}
	key := aboutKey{d.ID, d.Tenant}
	s.abouts = maps.Clone(s.abouts)
	if s.abouts == nil {
		s.abouts = map[aboutKey]string{}
	}
	if body.Text == "" {
		delete(s.abouts, key)
	} else {
		s.abouts[key] = body.Text
	}
	return key
}

// touch has the tools of a namespace count as changed.
func (s *Snapshot) touch(edits map[toolKey][]*version, of aboutKey) {
	for _, k := range s.order {
		if strings.HasPrefix(k.id, of.namespace+".") && k.tenant == of.tenant {
			edits[*k] = s.edit(edits, *k)
		}
	}
}

// sideDocument is the about text or choice that a change puts, or the about text that it deletes, without a body; nil for
// another change.
func sideDocument(c toolkeep.Change) *toolkeep.Document {
	switch c := c.(type) {
	case toolkeep.PutDocument:
		if c.Document.Kind == KindAbout || c.Document.Kind == KindChoice {
			return &c.Document
		}
	case toolkeep.DeleteDocument:
		if c.Kind == KindAbout {
			return &toolkeep.Document{Kind: KindAbout, Tenant: c.Tenant, ID: c.ID}
		}
	}
	return nil
}
