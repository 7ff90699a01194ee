package inspect

import (
	"bytes"
	"io"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/toolkeep/toolkeep"
)

const maxHidden = 512 // nesting of hidden elements

// cleanHTML removes everything from a page that runs, loads or is hidden: scripts, styles, frames, plug-ins, form
// controls, drawings, comments, hidden elements, event handlers, and addresses other than http, https and mailto.
// Of the rest p, br, b, i, em and strong stay as markup (Execution 8.9) and other elements as their text; a manifest
// that says html: markup keeps headings, lists, tables, links and images by their address too. Whitespace is collapsed
// outside of pre. What was taken out is a warning.
//
// Only listed elements stay, and all text is escaped again, so that a second parse cannot turn it into markup.
// E3712 if hidden elements are nested over 512 deep: such a page is made to break parsers; and, with html: reject, if
// the page runs, loads or hides something.
func (r *result) cleanHTML(text []byte) ([]byte, error) {
	if r.clean != nil { // as sent; the tree is cleaned later
		text = []byte(r.clean.Clean(string(text)))
	}
	z := html.NewTokenizer(bytes.NewReader(text))
	c := &cleaner{out: make([]byte, 0, len(text)/2), secrets: r.clean, markup: r.html() == "markup"}
	for {
		switch z.Next() {
		case html.ErrorToken:
			if z.Err() != io.EOF {
				return nil, z.Err()
			}
			c.flush()
			if len(c.unsafe) > 0 && r.html() == "reject" {
				return nil, unsafeMarkup("HTML", c.unsafe)
			}
			if gone := append(c.unsafe, c.taken...); len(gone) > 0 {
				r.out.Warnings = append(r.out.Warnings, toolkeep.Warning{Code: toolkeep.UnsafeHTML, Message: "parts of the HTML were taken out: " + strings.Join(gone, ", "),
					Details: map[string]any{"removed": gone}})
			}
			return bytes.TrimSpace(c.out), nil
		case html.CommentToken:
			c.took(&c.taken, "comment")
		case html.TextToken:
			if len(c.skip) == 0 {
				c.said = append(c.said, z.Token().Data...)
			}
		case html.StartTagToken:
			if !c.start(z.Token(), false) {
				return nil, toolkeep.NewError(toolkeep.UnsafeHTML,
					"the tool sent HTML with hidden elements nested over %d deep, which is not cleaned", maxHidden)
			}
		case html.SelfClosingTagToken:
			c.start(z.Token(), true)
		case html.EndTagToken:
			c.end(z.Token().DataAtom)
		}
	}
}

// html is what the manifest says of HTML: "" (which is basic), "markup" or "reject".
func (r *result) html() string {
	if r.tool.Result == nil {
		return ""
	}
	return r.tool.Result.HTML
}

func unsafeMarkup(kind string, what []string) error {
	return toolkeep.NewError(toolkeep.UnsafeHTML, "the tool sent %s with %s, and its manifest refuses that (result.html: reject)", kind, strings.Join(what, ", ")).
		With("found", what)
}

// cleaner writes the allowed parts.
type cleaner struct {
	out     []byte
	said    []byte           // text not yet written
	secrets toolkeep.Cleaner // nil: none
	skip    []atom.Atom      // elements being dropped, outermost first
	pre     int
	markup  bool     // plainMarkup stays, not basicMarkup alone
	unsafe  []string // what was taken out and runs, loads or hides something; at most maxTaken names
	taken   []string // what else was
}

const maxTaken = 20

// took notes that a kind of thing was taken out. Names of event handlers are the page's own, so they are cut.
func (c *cleaner) took(list *[]string, name string) {
	if name = cutText(name, 40); len(*list) < maxTaken && !slices.Contains(*list, name) {
		*list = append(*list, name)
	}
}

// start handles a start tag; false means that it is nested too deeply.
func (c *cleaner) start(t html.Token, closed bool) bool {
	void := closed || voidElements[t.DataAtom]
	if n := len(c.skip); n > 0 {
		last := c.skip[n-1]
		switch {
		case t.DataAtom != last || void || t.DataAtom == 0:
			return true
		case n == maxHidden:
			return false
		case !openEnded[last]:
			c.skip = append(c.skip, last)
			return true
		}
		c.skip = c.skip[:n-1] // the next paragraph ends the hidden one
		if len(c.skip) > 0 {
			return true
		}
	}
	if dropped[t.DataAtom] || hidden(t) {
		switch {
		case active[t.DataAtom]:
			c.took(&c.unsafe, t.Data)
		case dropped[t.DataAtom]:
			c.took(&c.taken, t.Data)
		default:
			c.took(&c.unsafe, "hidden "+name(t))
		}
		if !void && t.DataAtom != 0 {
			c.skip = append(c.skip, t.DataAtom)
		}
		return true
	}
	for _, a := range t.Attr {
		switch {
		case strings.HasPrefix(a.Key, "on"):
			c.took(&c.unsafe, a.Key)
		case (a.Key == "href" || a.Key == "src" || a.Key == "action" || a.Key == "cite") && !plainURL(a.Val):
			c.took(&c.unsafe, "address in "+a.Key)
		}
	}
	allowed, known := plainMarkup[t.DataAtom]
	if !known {
		if t.DataAtom != atom.Html && t.DataAtom != atom.Head && t.DataAtom != atom.Body {
			c.took(&c.taken, name(t))
		}
		return true
	}
	c.flush()
	if t.DataAtom == atom.Pre && !void {
		c.pre++
	}
	if !c.keeps(t.DataAtom) {
		c.took(&c.taken, t.Data)
		c.apart(t.DataAtom)
		return true
	}
	c.out = append(append(c.out, '<'), t.Data...)
	for _, a := range t.Attr {
		if a.Namespace != "" || !strings.Contains(" "+allowed+" lang dir title ", " "+a.Key+" ") {
			continue
		}
		if (a.Key == "href" || a.Key == "src" || a.Key == "cite") && !plainURL(a.Val) {
			continue
		}
		c.out = append(append(append(c.out, ' '), a.Key...), `="`...)
		c.out = append(append(c.out, attributeEscaper.Replace(c.clean(a.Val))...), '"')
	}
	c.out = append(c.out, '>')
	return true
}

func (c *cleaner) end(name atom.Atom) {
	if n := len(c.skip); n > 0 {
		if c.skip[n-1] == name {
			c.skip = c.skip[:n-1]
		}
		return
	}
	if _, known := plainMarkup[name]; !known || voidElements[name] {
		return
	}
	c.flush()
	if name == atom.Pre && c.pre > 0 {
		c.pre--
	}
	if !c.keeps(name) {
		c.apart(name)
		return
	}
	c.out = append(append(append(c.out, "</"...), name.String()...), '>')
}

func (c *cleaner) keeps(name atom.Atom) bool { return c.markup || basicMarkup[name] }

// apart keeps the texts around the border of an element that is taken out from running together.
func (c *cleaner) apart(name atom.Atom) {
	if !inline[name] {
		c.space(name != atom.Td && name != atom.Th)
	}
}

// name is the name of an element, that of an unknown one without its text.
func name(t html.Token) string {
	if t.DataAtom == 0 {
		return "unknown element"
	}
	return t.Data
}

// clean redacts secrets before text is escaped, since the escaped form would not match.
func (c *cleaner) clean(s string) string {
	if c.secrets == nil {
		return s
	}
	return c.secrets.Clean(s)
}

// flush writes the text between two tags, which comments and hidden elements may have split.
func (c *cleaner) flush() {
	if len(c.said) > 0 {
		c.text(c.clean(string(c.said)))
		c.said = c.said[:0]
	}
}

// text writes text; outside of pre, runs of whitespace become one space.
func (c *cleaner) text(s string) {
	if c.pre > 0 {
		c.out = append(c.out, textEscaper.Replace(s)...)
		return
	}
	for len(s) > 0 {
		n := strings.IndexAny(s, " \t\n\r\f")
		if n < 0 {
			n = len(s)
		}
		c.out = append(c.out, textEscaper.Replace(s[:n])...)
		rest := strings.TrimLeft(s[n:], " \t\n\r\f")
		if space := s[n : len(s)-len(rest)]; space != "" {
			c.space(strings.Contains(space, "\n"))
		}
		s = rest
	}
}

func (c *cleaner) space(line bool) {
	n := len(c.out)
	if n == 0 || c.out[n-1] == '\n' {
		return
	}
	switch {
	case line && c.out[n-1] == ' ':
		c.out[n-1] = '\n'
	case line:
		c.out = append(c.out, '\n')
	case c.out[n-1] != ' ':
		c.out = append(c.out, ' ')
	}
}

// hidden reports whether an element is marked as hidden.
func hidden(t html.Token) bool {
	for _, a := range t.Attr {
		switch a.Key {
		case "hidden":
			return true
		case "aria-hidden":
			if strings.EqualFold(a.Val, "true") {
				return true
			}
		case "style":
			style := strings.ToLower(strings.Join(strings.Fields(a.Val), ""))
			if strings.Contains(style, "display:none") || strings.Contains(style, "visibility:hidden") ||
				strings.Contains(style, "font-size:0") || strings.Contains(style, "opacity:0;") || strings.HasSuffix(style, "opacity:0") {
				return true
			}
		}
	}
	return false
}

// plainURL reports whether an address is relative, http, https or mailto.
func plainURL(s string) bool {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil {
		return false
	}
	switch strings.ToLower(u.Scheme) {
	case "", "http", "https", "mailto":
		return true
	}
	return false
}

var (
	textEscaper      = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	attributeEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
)

func atoms(names ...atom.Atom) map[atom.Atom]bool {
	m := make(map[atom.Atom]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

var (
	// dropped elements go with their content.
	dropped = atoms(atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Iframe, atom.Frame, atom.Frameset, atom.Noframes,
		atom.Object, atom.Embed, atom.Applet, atom.Noembed, atom.Svg, atom.Math, atom.Canvas, atom.Audio, atom.Video, atom.Select,
		atom.Textarea, atom.Button, atom.Input, atom.Datalist, atom.Link, atom.Meta, atom.Base, atom.Dialog, atom.Map)
	// active elements run or load something.
	active = atoms(atom.Script, atom.Iframe, atom.Frame, atom.Frameset, atom.Object, atom.Embed, atom.Applet, atom.Svg, atom.Math, atom.Base)
	// basicMarkup stays by default, of plainMarkup.
	basicMarkup = atoms(atom.P, atom.Br, atom.B, atom.I, atom.Em, atom.Strong)
	// inline elements stand within a word or a sentence.
	inline = atoms(atom.A, atom.Abbr, atom.Cite, atom.Code, atom.Del, atom.Dfn, atom.Img, atom.Ins, atom.Kbd, atom.Mark, atom.Q, atom.Rp, atom.Rt,
		atom.Ruby, atom.S, atom.Samp, atom.Small, atom.Span, atom.Sub, atom.Sup, atom.Time, atom.U, atom.Var, atom.Wbr)
	// voidElements have no end tag.
	voidElements = atoms(atom.Area, atom.Base, atom.Br, atom.Col, atom.Embed, atom.Hr, atom.Img, atom.Input, atom.Link, atom.Meta,
		atom.Param, atom.Source, atom.Track, atom.Wbr, atom.Frame)
	// openEnded elements may omit their end tag: the next of the same name ends them.
	openEnded = atoms(atom.P, atom.Li, atom.Dt, atom.Dd, atom.Tr, atom.Td, atom.Th, atom.Thead, atom.Tbody, atom.Tfoot, atom.Rt, atom.Rp)
	// plainMarkup stays, with the listed attributes and lang, dir and title.
	plainMarkup = map[atom.Atom]string{
		atom.A: "href", atom.Abbr: "", atom.Address: "", atom.Article: "", atom.Aside: "", atom.B: "", atom.Blockquote: "cite",
		atom.Br: "", atom.Caption: "", atom.Cite: "", atom.Code: "", atom.Col: "span", atom.Colgroup: "span", atom.Dd: "",
		atom.Del: "cite datetime", atom.Details: "", atom.Dfn: "", atom.Div: "", atom.Dl: "", atom.Dt: "", atom.Em: "",
		atom.Figcaption: "", atom.Figure: "", atom.Footer: "", atom.H1: "", atom.H2: "", atom.H3: "", atom.H4: "", atom.H5: "",
		atom.H6: "", atom.Header: "", atom.Hr: "", atom.I: "", atom.Img: "src alt", atom.Ins: "cite datetime", atom.Kbd: "",
		atom.Li: "value", atom.Main: "", atom.Mark: "", atom.Nav: "", atom.Ol: "start reversed", atom.P: "", atom.Pre: "",
		atom.Q: "cite", atom.Rp: "", atom.Rt: "", atom.Ruby: "", atom.S: "", atom.Samp: "", atom.Section: "", atom.Small: "",
		atom.Span: "", atom.Strong: "", atom.Sub: "", atom.Summary: "", atom.Sup: "", atom.Table: "", atom.Tbody: "",
		atom.Td: "colspan rowspan", atom.Tfoot: "", atom.Th: "colspan rowspan scope", atom.Thead: "", atom.Time: "datetime",
		atom.Title: "", atom.Tr: "", atom.U: "", atom.Ul: "", atom.Var: "", atom.Wbr: "",
	}
)
