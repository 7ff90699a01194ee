package upstream

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/redact"
)

// Definitions of tools are compared with pinned ones by digest, so what is taken out of
// them may depend on nothing but the definition and the session that it was read in: on
// what this session was given, and never on what is held elsewhere at the moment. Then
// two readings give the same, and where a server shows everybody their own secret, two
// people's do.

// own is what one session's server was given.
type own struct {
	known *redact.Redactor

	mu   sync.Mutex
	last http.Header // credentials that were sent last
}

func newOwn() *own { return &own{known: redact.NewRedactor(nil)} }

// add keeps secrets for as long as the session is there: a server may say what it was
// given before.
func (o *own) add(secrets []Value) {
	for _, v := range secrets {
		o.known.Hold(redact.AllTenants, v.Held...)
	}
}

// sent keeps the credentials of a login, which are renewed while a session lasts.
func (o *own) sent(credentials http.Header) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if maps.EqualFunc(o.last, credentials, slices.Equal[[]string]) {
		return
	}
	for name, values := range credentials {
		for i, v := range values {
			if old := o.last[name]; i < len(old) && old[i] == v {
				continue
			}
			if _, token, two := strings.Cut(v, " "); two { // behind the scheme
				v = token
			}
			o.known.Hold(redact.AllTenants, v)
		}
	}
	o.last = credentials.Clone()
}

// taken gives the tools as they may be shown to all of the session's tenant, and why
// some of these cannot be used.
//
// A person chooses the own secret, which may be a word of everybody's texts. So what a
// person's session shows counts as what is known already where the two differ by words
// that are taken out alone.
func (s *server) taken(sess *session, tools [][]byte) (shown [][]byte, withheld map[string]string) {
	view := sess.own.known.All()
	if !view.Holds() {
		return tools, nil
	}
	withhold := func(name, why string) {
		if withheld == nil {
			withheld = make(map[string]string)
		}
		withheld[name] = why
	}
	like := s.likeKnown(sess, view)
	for i, def := range tools {
		clean := view.CleanJSON(def)
		if same(clean, def) {
			continue
		}
		if shown == nil {
			shown = slices.Clone(tools)
		}
		name := mcp.Text(def, "name")
		if known, why := like(name, clean); known != nil {
			shown[i] = known
			if why != "" {
				withhold(name, why)
			}
			continue
		}
		shown[i] = clean
		if inStructure(view, def) {
			withhold(mcp.Text(clean, "name"), "the server writes a secret that it was given into the tool's name or schema, where no word can be taken out; "+
				"have the server leave it out of its definitions")
			sess.state.log.note("tool withheld: its name or schema holds a secret: " + toolkeep.ClipBytes(mcp.Text(clean, "name"), 100))
			continue
		}
		sess.state.log.note("a secret was taken out of the texts of the tool " + toolkeep.ClipBytes(mcp.Text(clean, "name"), 100))
	}
	if shown == nil {
		return tools, nil
	}
	return shown, withheld
}

// likeKnown finds the definition, known or accepted, that is the same but for words which
// are taken out, and why it is withheld; nil if there is none, or the session is not one
// person's.
func (s *server) likeKnown(sess *session, view *redact.Cleaner) func(name string, clean []byte) (def []byte, withheld string) {
	latest := sync.OnceValues(sess.state.defs.byName)
	return func(name string, clean []byte) (def []byte, withheld string) {
		if sess.key.subject == "" || name == "" {
			return nil, ""
		}
		want, err := canon.JCS(clean)
		if err != nil {
			return nil, ""
		}
		is := func(def []byte) bool {
			got, err := canon.JCS(view.CleanJSON(def))
			return err == nil && bytes.Equal(got, want)
		}
		tools, why := latest()
		if def := tools[name]; def != nil && is(def) {
			return def, why[name]
		}
		if s.config.Accepted != nil {
			for _, def := range s.config.Accepted(s.spec.Tenant, s.spec.Name, name) {
				if is(def) {
					return def, ""
				}
			}
		}
		return nil, ""
	}
}

// byName are the latest definitions of tools, of several with one name the first, and why
// some are withheld.
func (d *definitions) byName() (tools map[string][]byte, withheld map[string]string) {
	last, _ := d.get()
	tools = make(map[string][]byte, len(last.Tools))
	for _, def := range last.Tools {
		name := mcp.Text(def, "name")
		if _, twice := tools[name]; !twice {
			tools[name] = def
		}
	}
	return tools, last.Withheld
}

// inStructure tells whether words are taken out where a tool would be another one
// without them: in its name, or in a schema outside of what only people and models read.
func inStructure(view *redact.Cleaner, def []byte) bool {
	tree, err := canon.ParseObject(def, canon.Limits{Bytes: int64(len(def)) + 1, Depth: 10_000, Properties: len(def) + 1, Elements: len(def) + 1})
	if err != nil {
		return true
	}
	bare := map[string]any{}
	for _, k := range []string{"name", "inputSchema", "outputSchema"} {
		if v, has := tree[k]; has {
			bare[k] = withoutTexts(v)
		}
	}
	raw := canon.Append(nil, bare)
	return !same(view.CleanJSON(raw), raw)
}

// withoutTexts drops the annotations of a schema. Properties of the same names are
// schemas and no texts, and stay.
func withoutTexts(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			_, text := e.(string)
			_, list := e.([]any)
			if text && (k == "title" || k == "description" || k == "$comment") || list && k == "examples" {
				continue
			}
			out[k] = withoutTexts(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = withoutTexts(e)
		}
		return out
	}
	return v
}
