package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// KindChoice is the kind of the documents that hold which operations of a source document become a namespace's tools. The id
// is the namespace and a digest of the document's title, the tenant the tools' owner. It is beside the manifests: a choice
// changes no tool, and counts whatever becomes of the tools.
const KindChoice = "catalog_choice"

// Choice says which operations of a document become tools and what these are called. Of each list, none is what the last
// import of the document chose, and one empty text is none at all.
type Choice struct {
	// Include and Exclude are patterns: id:, path:, tag: or method: and a text, in which * is any number of any characters, as in
	// id:list*, path:/v1/*, tag:pets and method:GET. An operation becomes a tool that one of Include fits, or that has none, and
	// none of Exclude does. A pattern that fits no operation is an error.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// Names are rules REGEXP=REPLACEMENT (RE2; $1 is a group) for operationIds, each applied to what the one before made. A rule
	// that fits none is an error.
	Names []string `json:"names,omitempty"`
}

// Limits of a Choice.
const (
	MaxPatterns = 100 // in each list
	MaxPattern  = 500 // bytes of one
	maxTitles   = 100 // documents of a namespace that have a choice
)

// Empty reports whether a choice says nothing.
func (c *Choice) Empty() bool { return len(c.Include)+len(c.Exclude)+len(c.Names) == 0 }

// Equal reports whether two choices are the same.
func (c *Choice) Equal(o *Choice) bool {
	return slices.Equal(c.Include, o.Include) && slices.Equal(c.Exclude, o.Exclude) && slices.Equal(c.Names, o.Names)
}

type choiceBody struct {
	Title string `json:"title"`
	Choice
}

// Choices returns what was chosen of the documents behind a namespace's tools, by their titles. It has all that was kept
// before, on whatever node. The map is not written again. shared is for tools of all tenants.
//
// Errors: E3201 as SetChoice; E3003.
func (c *Catalog) Choices(ctx context.Context, p *toolkeep.Principal, namespace string, shared bool) (map[string]Choice, error) {
	if err := c.mayPublish(p, PublishOptions{Shared: shared}); err != nil {
		return nil, err
	}
	if err := c.catchUp(ctx); err != nil {
		return nil, unreadable(err)
	}
	return c.Snapshot().choices[ownedBy(p, namespace, shared)], nil
}

func ownedBy(p *toolkeep.Principal, namespace string, shared bool) aboutKey {
	if shared {
		return aboutKey{namespace, ""}
	}
	return aboutKey{namespace, p.Tenant}
}

// SetChoice keeps what was chosen of the document with a title, for the next import of it into the namespace.
//
// Errors: E3201 without catalog:publish, or for shared without catalog:admin; E3301 for another namespace than
// ^[a-z][a-z0-9-]{0,31}$, a choice over its limits, a title over 1000 bytes, and more than 100 titles in the namespace;
// E3003, E3963, E3965 as Publish.
func (c *Catalog) SetChoice(ctx context.Context, p *toolkeep.Principal, namespace, title string, choice Choice, shared bool) error {
	all, err := c.Choices(ctx, p, namespace, shared)
	if err != nil {
		return err
	}
	last, known := all[title]
	switch {
	case !namespacePattern.MatchString(namespace):
		return toolkeep.NewError(toolkeep.InvalidParameters, "%q is no namespace: it is a lower-case letter and up to 31 lower-case letters, digits and hyphens after it", toolkeep.Clip(namespace, 100))
	case len(title) > 1000:
		return toolkeep.NewError(toolkeep.InvalidParameters, "the title has %d bytes, and at most 1000 are kept", len(title))
	case !known && len(all) >= maxTitles:
		return toolkeep.NewError(toolkeep.InvalidParameters, "the namespace %s keeps the choices of %d documents already; import this one into another", namespace, len(all))
	case known && last.Equal(&choice):
		return nil
	}
	for _, list := range [][]string{choice.Include, choice.Exclude, choice.Names} {
		if len(list) > MaxPatterns || slices.ContainsFunc(list, func(s string) bool { return len(s) > MaxPattern }) {
			return toolkeep.NewError(toolkeep.InvalidParameters, "a list of a choice has at most %d texts of at most %d bytes", MaxPatterns, MaxPattern)
		}
	}
	if !c.running() {
		return unreadable(errors.New("catalog: SetChoice without Start"))
	}
	body, err := json.Marshal(choiceBody{title, choice})
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(title))
	key := ownedBy(p, namespace, shared)
	return c.apply(ctx, []toolkeep.Change{toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: KindChoice, Tenant: key.tenant, ID: namespace + "." + hex.EncodeToString(sum[:16]), Body: body, UpdatedBy: p.Subject}}})
}

// keepChoice takes one choice.
func (s *Snapshot) keepChoice(d *toolkeep.Document) {
	var body choiceBody
	if json.Unmarshal(d.Body, &body) != nil {
		return // a later version's
	}
	namespace, _, _ := strings.Cut(d.ID, ".")
	key := aboutKey{namespace, d.Tenant}
	all, one := maps.Clone(s.choices), maps.Clone(s.choices[key])
	if all == nil {
		all = map[aboutKey]map[string]Choice{}
	}
	if one == nil {
		one = map[string]Choice{}
	}
	one[body.Title] = body.Choice
	all[key] = one
	s.choices = all
}
