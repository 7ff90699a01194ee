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

// Tool definitions are compared with pinned ones by digest. So what is redacted in them
// depends only on the definition and on the secrets given to the session that read it,
// never on what else is held at the moment. Two readings then agree, and if a server
// shows each person their own secret, the readings of two people agree too.

// own holds the secrets given to one session's server.
type own struct {
	known *redact.Redactor

	mu   sync.Mutex
	last http.Header // latest credentials sent
}

func newOwn() *own { return &own{known: redact.NewRedactor(nil)} }

// upstream names the server for redact.Scope: a program by its owner and name, as tenants may
// use the same names.
func (s *Spec) upstream() string {
	if s.URL != "" {
		return redact.URLHost(s.URL)
	}
	return "mcp:" + s.Tenant + "/" + s.Name
}

// add keeps secrets for the life of the session: a server may repeat earlier ones.
func (o *own) add(secrets []Value) {
	for _, v := range secrets {
		o.known.Hold(redact.AllTenants, v.Held...)
	}
}

// sent keeps the credentials of a login, which are renewed during a session.
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
			if _, token, two := strings.Cut(v, " "); two { // the part after the scheme
				v = token
			}
			o.known.Hold(redact.AllTenants, v)
		}
	}
	o.last = credentials.Clone()
}

// taken returns the tools as the session's whole tenant may see them, and why some of
// them are withheld.
//
// A person chooses their own secret, and it may be a word that everyone's texts use. So
// a definition from a person's session counts as the known one if the two differ only
// by redacted words.
func (s *server) taken(sess *session, tools [][]byte) (shown [][]byte, withheld map[string]string) {
	cleaner := sess.own.known.All()
	if !cleaner.Holds() {
		return tools, nil
	}
	withhold := func(name, why string) {
		if withheld == nil {
			withheld = make(map[string]string)
		}
		withheld[name] = why
	}
	like := s.likeKnown(sess, cleaner)
	for i, def := range tools {
		clean := cleaner.CleanJSON(def)
		if bytes.Equal(clean, def) {
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
		if inStructure(cleaner, def) {
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

// likeKnown finds a known or accepted definition that differs only by redacted words,
// and why it is withheld. It returns nil if there is none or the session is not one
// person's.
func (s *server) likeKnown(sess *session, cleaner *redact.Cleaner) func(name string, clean []byte) (def []byte, withheld string) {
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
			got, err := canon.JCS(cleaner.CleanJSON(def))
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

// byName returns the latest tool definitions, the first of each name, and why some are
// withheld.
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

// inStructure reports whether redaction would change the tool itself: its name, or its
// schemas outside of annotations.
func inStructure(cleaner *redact.Cleaner, def []byte) bool {
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
	return !bytes.Equal(cleaner.CleanJSON(raw), raw)
}

// withoutTexts drops a schema's annotations. Properties with the same names are schemas
// and stay.
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
