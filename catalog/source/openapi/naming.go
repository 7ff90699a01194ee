package openapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

const maxName = 64 // of the second half of a tool id

// defaultNamespace is a slug of the title, else of the server's host, else of the file's name.
func (d *document) defaultNamespace() string {
	if s := slug(d.title, 32, '-'); s != "" {
		return s
	}
	if u, err := url.Parse(d.opt.Server); err == nil {
		if s := slug(u.Hostname(), 32, '-'); s != "" {
			return s
		}
	}
	base := path.Base(d.main.name)
	if s := slug(strings.TrimSuffix(base, path.Ext(base)), 32, '-'); s != "" {
		return s
	}
	return "api"
}

// slug returns lower-case ASCII words joined by sep, starting with a letter, at most max long, and
// cut between words if that keeps more than half.
func slug(s string, max int, sep byte) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(catalog.PlainLetters(s)) {
		letter := r >= 'a' && r <= 'z'
		if !letter && (r < '0' || r > '9' || b.Len() == 0) {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte(sep)
			gap = false
		}
		b.WriteRune(r)
	}
	out := b.String()
	if len(out) > max {
		cut := out[:max]
		if i := strings.LastIndexByte(cut, sep); out[max] != sep && i > max/2 {
			cut = cut[:i]
		}
		out = strings.TrimRight(cut, string(sep))
	}
	return out
}

// nameAll names every operation, including those to be refused, so that nothing is renamed when a
// refusal goes away. Of operations with the same name, the one published under it keeps it, else
// the first in the document; the others get a suffix derived from their method and path.
func (d *document) nameAll(ops []*operation) error {
	if err := d.applyRules(ops); err != nil {
		return err
	}
	for _, op := range ops {
		op.name = wantedName(op)
	}
	d.shorten(ops)
	claims := map[string][]*operation{}
	var order []string
	for _, op := range ops {
		if claims[op.name] == nil {
			order = append(order, op.name)
		}
		claims[op.name] = append(claims[op.name], op)
	}
	taken := map[string]bool{}
	for _, name := range order {
		taken[name] = true
	}
	for _, name := range order {
		group := claims[name]
		if len(group) == 1 {
			continue
		}
		keeper := d.keeper(name, group)
		for _, op := range group {
			if op != keeper {
				op.name = suffixed(op, name, taken)
				taken[op.name] = true
			}
		}
	}
	return nil
}

func (d *document) keeper(name string, group []*operation) *operation {
	method, path := d.wasAt(d.namespace + "." + name)
	for _, op := range group {
		if op.method == method && op.template.sent == path {
			return op
		}
	}
	return group[0]
}

func wantedName(op *operation) string {
	name := catalog.Identifier(cmp.Or(op.ruled, op.id))
	if name == "" {
		name = catalog.Identifier(pathWords(op))
		if name == "" || name == strings.ToLower(op.method) && op.path != "/" {
			// The path has no characters allowed in a name.
			name = catalog.Identifier(strings.ToLower(op.method) + "_" + hash6(op))
		}
	}
	if len(name) > maxName {
		name = strings.TrimRight(name[:maxName-7], "_-") + "_" + hash6(op)
	}
	return name
}

func suffixed(op *operation, name string, taken map[string]bool) string {
	sum := opHash(op)
	for n := 6; ; n += 6 {
		keep := min(len(name), maxName-1-n)
		s := strings.TrimRight(name[:keep], "_-") + "_" + sum[:n]
		if !taken[s] || n >= 48 {
			return s
		}
	}
}

func hash6(op *operation) string { return opHash(op)[:6] }

func opHash(op *operation) string {
	sum := sha256.Sum256([]byte(op.method + " " + op.path))
	return hex.EncodeToString(sum[:])
}

// pathWords names an operation without an id: getUsersById for GET /users/{id}.
func pathWords(op *operation) string {
	var b strings.Builder
	b.WriteString(strings.ToLower(op.method))
	for _, seg := range strings.Split(catalog.PlainLetters(op.path), "/") {
		for seg != "" {
			open := strings.IndexByte(seg, '{')
			if open < 0 {
				b.WriteString(camel(seg))
				break
			}
			b.WriteString(camel(seg[:open]))
			name := seg[open+1:]
			end := strings.IndexByte(name, '}')
			if end < 0 {
				end = len(name)
			}
			if word := camel(name[:end]); word != "" {
				b.WriteString("By" + word)
			}
			seg = name[min(end+1, len(name)):]
		}
	}
	return b.String()
}

// camel joins the words of s, each capitalised.
func camel(s string) string {
	var b strings.Builder
	up := true
	for _, r := range s {
		if r >= 0x80 || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			up = true
			continue
		}
		if up {
			r = unicode.ToUpper(r)
			up = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// spoken writes an operationId as a phrase: ListSMSMessages and list_sms_messages become "List SMS
// messages" and "List sms messages".
func spoken(id string) string {
	var out []byte
	r := []byte(catalog.PlainLetters(toolkeep.Clip(id, 200)))
	for i, c := range r {
		switch {
		case !isLetter(c) && (c < '0' || c > '9'):
			c = ' '
		case isUpper(c) && i > 0:
			if begins := !isUpper(r[i-1]) || i+1 < len(r) && isLetter(r[i+1]) && !isUpper(r[i+1]); begins {
				out = append(out, ' ')
			}
		}
		out = append(out, c)
	}
	words := strings.Fields(string(out))
	for i, w := range words {
		switch acronym := len(w) > 1 && strings.ToUpper(w) == w; {
		case acronym:
		case i == 0:
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		default:
			words[i] = strings.ToLower(w)
		}
	}
	return strings.Join(words, " ")
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

func isLetter(c byte) bool { return isUpper(c) || c >= 'a' && c <= 'z' }
