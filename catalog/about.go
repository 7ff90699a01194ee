package catalog

import (
	"context"
	"errors"
	"iter"
	"maps"
	"regexp"
	"slices"
	"sort"
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

// aboutBody without a text says that nothing is to be said. Without a document that is not decided yet.
type aboutBody struct {
	Text   string `json:"text"`
	Import bool   `json:"import,omitempty"` // an import said it, so the next one may change it
}

// AboutFrom is where an about text comes from, and so what it may replace.
type AboutFrom int

const (
	AboutByHand   AboutFrom = iota // replaces any
	AboutOfImport                  // replaces what an import said before
	AboutOfServer                  // replaces none: what a server said once is changed by hand
	AboutForget                    // of a server that is removed: drops the text, and that it was decided
)

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
	return s.abouts[aboutKey{namespace, t.Tenant}].Text
}

// SetAbout keeps what the server or API behind a namespace's tools says of itself, for search; "" is nothing, which is kept
// too. Where from must not replace what is kept, nothing is changed. shared is for tools of all tenants. It returns when this
// catalogue shows it; the change is an event.
//
// Errors: E3201 without catalog:publish, for shared without catalog:admin, and where tools of an MCP server are in the
// namespace without servers:admin; E3301 for another namespace than
// ^[a-z][a-z0-9-]{0,31}$, and for a text that addresses a model or hides characters; E3003, E3963, E3965 as Publish.
func (c *Catalog) SetAbout(ctx context.Context, p *toolkeep.Principal, namespace, text string, from AboutFrom, shared bool) error {
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
	now := c.Snapshot()
	if !p.May(toolkeep.PermServers) && now.ofServer(key) {
		return denied(toolkeep.PermServers, "say what an MCP server is for")
	}
	was, decided := now.abouts[key]
	next := aboutBody{text, from == AboutOfImport}
	switch {
	case from == AboutForget && !decided, from == AboutOfServer && decided, from == AboutOfImport && decided && !was.Import:
		return nil
	case from != AboutForget && decided && was == next:
		return nil
	}
	change := toolkeep.Change(toolkeep.DeleteDocument{Kind: KindAbout, Tenant: key.tenant, ID: namespace, Expect: toolkeep.AnyRevision, By: p.Subject})
	if from != AboutForget {
		body, err := json.Marshal(next)
		if err != nil {
			return err
		}
		change = toolkeep.PutDocument{Expect: toolkeep.AnyRevision, Document: toolkeep.Document{Kind: KindAbout, Tenant: key.tenant, ID: namespace, Body: body, UpdatedBy: p.Subject}}
	}
	event, err := appendEvent(eventAbout, p.Tenant, c.today(), map[string]any{"namespace": namespace, "about": text, "previous_about": was.Text, "by": p.Subject, "shared": shared})
	if err != nil {
		return err
	}
	return c.apply(ctx, []toolkeep.Change{change, event})
}

// ofServer reports whether tools of an MCP server are in a namespace.
func (s *Snapshot) ofServer(of aboutKey) bool {
	for k := range s.namespace(of) {
		if e := s.entry(*k); slices.ContainsFunc(e.versions, func(v *version) bool { return v.Tool.Manifest.Execution.Kind == "mcp" }) {
			return true
		}
	}
	return false
}

// namespace yields a namespace's tools of one owner.
func (s *Snapshot) namespace(of aboutKey) iter.Seq[*toolKey] {
	return func(yield func(*toolKey) bool) {
		from := sort.Search(len(s.order), func(i int) bool { return s.order[i].id >= of.namespace+"." })
		for _, k := range s.order[from:] {
			if !strings.HasPrefix(k.id, of.namespace+".") || k.tenant == of.tenant && !yield(k) {
				return
			}
		}
	}
}

// documents is an optional ability of a Store that has an order of versions before the feed.
type documents interface {
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// hear takes the about texts of a store. The feed may bring them again.
func (s *Snapshot) hear(list []toolkeep.Document) {
	if len(list) == 0 {
		return
	}
	if s.abouts = maps.Clone(s.abouts); s.abouts == nil { // an earlier snapshot has them
		s.abouts = map[aboutKey]aboutBody{}
	}
	for i := range list {
		key := aboutKey{list[i].ID, list[i].Tenant}
		var body aboutBody
		switch {
		case list[i].Body == nil:
			delete(s.abouts, key)
			continue
		case json.Unmarshal(list[i].Body, &body) != nil:
			body = aboutBody{} // a later version's
		}
		s.abouts[key] = body
	}
}

// touch has the tools of a namespace count as changed.
func (s *Snapshot) touch(edits map[toolKey][]*version, of aboutKey) {
	for k := range s.namespace(of) {
		edits[*k] = s.edit(edits, *k)
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
