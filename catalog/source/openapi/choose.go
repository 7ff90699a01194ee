package openapi

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
)

// Choice says which operations of a document become tools and what these are called. Its zero value is what the last import of
// the document chose, at first everything under its own name: the tools remember it.
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
	maxPatterns = 100 // in each list
	maxPattern  = 500 // bytes of one
)

func (c *Choice) empty() bool { return len(c.Include)+len(c.Exclude)+len(c.Names) == 0 }

func (c *Choice) equal(o *Choice) bool {
	return slices.Equal(c.Include, o.Include) && slices.Equal(c.Exclude, o.Exclude) && slices.Equal(c.Names, o.Names)
}

// numbered is a choice as tools remember it. Of several the one with the highest number is the last.
type numbered struct {
	Choice
	Number int `json:"number"`
}

// decide finds the choice that counts.
func (d *document) decide() {
	last := d.lastChoice()
	d.choice = numbered{d.opt.Choice, last.Number}
	switch {
	case d.opt.Choice.empty():
		d.choice = last
		if !last.Choice.empty() {
			d.warn("the choice of the last import counts:%s; --include 'path:*' takes everything again", last.flags())
		}
	case !d.opt.Choice.equal(&last.Choice):
		d.choice.Number++
	}
}

func (c *Choice) flags() string {
	var b strings.Builder
	for _, list := range []struct {
		flag string
		of   []string
	}{{"include", c.Include}, {"exclude", c.Exclude}, {"name-rule", c.Names}} {
		for _, p := range list.of {
			b.WriteString(" --" + list.flag + " '" + clean(p) + "'")
		}
	}
	return b.String()
}

// lastChoice reads what the published tools of the document remember.
func (d *document) lastChoice() (last numbered) {
	for _, id := range d.publishedIDs() {
		if old := d.ofThisDocument(id); old != nil {
			var was numbered
			if json.Unmarshal(canon.Append(nil, old.Manifest.Source.Metadata[source.Chosen]), &was) == nil && was.Number > last.Number && was.Number < 1<<30 {
				last = was
			}
		}
	}
	return last
}

// ofThisDocument returns the published version of a tool that came from a document of this title, or nil.
func (d *document) ofThisDocument(id string) *toolkeep.Tool {
	if d.opt.Previous == nil {
		return nil
	}
	old := d.opt.Previous(id)
	if old == nil || old.Manifest == nil || old.Manifest.Source == nil || old.Manifest.Source.Type != "openapi" || old.Manifest.Source.Metadata["title"] != d.title {
		return nil
	}
	return old
}

// publishedIDs lists the published tools of the namespace, once.
func (d *document) publishedIDs() []string {
	if d.published == nil && d.opt.Published != nil && d.opt.Previous != nil {
		d.published = append([]string{}, d.opt.Published(d.namespace)...)
	}
	return d.published
}

// pattern is one of Include or Exclude.
type pattern struct{ text, of, glob string }

func parsePatterns(flag string, list []string) (patterns []pattern, err error) {
	if len(list) > maxPatterns {
		return nil, importError("there are more than %d patterns of --%s", maxPatterns, flag)
	}
	for _, text := range list {
		of, glob, ok := strings.Cut(text, ":")
		if !ok || glob == "" || len(text) > maxPattern || !slices.Contains([]string{"id", "path", "tag", "method"}, of) {
			return nil, importError("--%s %q is not a pattern: write id:, path:, tag: or method: and a text with * for any characters, such as id:list*, path:/v1/*, tag:pets or method:GET", flag, toolkeep.ClipBytes(clean(text), 100))
		}
		patterns = append(patterns, pattern{text, of, glob})
	}
	return patterns, nil
}

func (p *pattern) fits(op *operation) bool {
	switch p.of {
	case "id":
		return op.id != "" && fitsGlob(p.glob, op.id)
	case "path":
		return fitsGlob(p.glob, op.path)
	case "method":
		return fitsGlob(strings.ToUpper(p.glob), op.method)
	}
	list, _ := op.op.get("tags").([]any)
	return slices.ContainsFunc(list, func(v any) bool {
		s, _ := scalarText(v)
		return fitsGlob(p.glob, s)
	})
}

// fitsGlob reports whether a text fits a pattern in which * is any number of any characters.
func fitsGlob(glob, s string) bool {
	first, rest, more := strings.Cut(glob, "*")
	s, ok := strings.CutPrefix(s, first)
	if !ok || !more {
		return ok && s == ""
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] {
		_, after, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = after
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

// choose returns the operations that become tools, and those that are left out.
func (d *document) choose(ops []*operation) (kept, out []*operation, err error) {
	include, err := parsePatterns("include", d.choice.Include)
	if err != nil {
		return nil, nil, err
	}
	exclude, err := parsePatterns("exclude", d.choice.Exclude)
	if err != nil {
		return nil, nil, err
	}
	used := map[string]bool{}
	fits := func(list []pattern, op *operation) (any bool) {
		for i := range list {
			if list[i].fits(op) {
				used[list[i].text], any = true, true
			}
		}
		return any
	}
	for _, op := range ops {
		in, not := fits(include, op), fits(exclude, op)
		if (in || len(include) == 0) && !not {
			kept = append(kept, op)
		} else {
			out = append(out, op)
		}
	}
	for _, p := range slices.Concat(include, exclude) {
		if !used[p.text] {
			return nil, nil, importError("the pattern %q fits no operation of the document; correct it, or leave it out", toolkeep.ClipBytes(clean(p.text), 200))
		}
	}
	if len(kept) == 0 && len(ops) > 0 {
		return nil, nil, importError("--include and --exclude leave none of the %d operations", len(ops))
	}
	return kept, out, nil
}

// applyRules names operations by the rules of the choice.
func (d *document) applyRules(ops []*operation) error {
	if len(d.choice.Names) > maxPatterns {
		return importError("there are more than %d rules of --name-rule", maxPatterns)
	}
	for _, rule := range d.choice.Names {
		i := strings.LastIndexByte(rule, '=')
		if i < 1 || len(rule) > maxPattern {
			return importError("--name-rule %q is not a rule: write REGEXP=REPLACEMENT, such as '^api_v1_(.*)=$1'", toolkeep.ClipBytes(clean(rule), 100))
		}
		from, err := regexp.Compile(rule[:i])
		if err != nil {
			return importError("--name-rule %q: its regular expression cannot be read (RE2)", toolkeep.ClipBytes(clean(rule), 100)).Because(err)
		}
		fits := false
		for _, op := range ops {
			if op.id == "" {
				continue
			}
			if op.ruled == "" {
				op.ruled = toolkeep.ClipBytes(op.id, 1000)
			}
			if !from.MatchString(op.ruled) {
				continue
			}
			fits = true
			if op.ruled = from.ReplaceAllString(op.ruled, rule[i+1:]); catalog.Identifier(op.ruled) == "" || len(op.ruled) > 1000 {
				return importError("--name-rule %q leaves no name for %s (%s)", toolkeep.ClipBytes(clean(rule), 100), toolkeep.ClipBytes(clean(op.id), 100), toolkeep.ClipBytes(clean(op.label()), 200))
			}
		}
		if !fits {
			return importError("--name-rule %q fits no operationId of the document; correct it, or leave it out", toolkeep.ClipBytes(clean(rule), 100))
		}
	}
	return nil
}

// shorten gives operations with ids of FastAPI, which are a function's name, the path and the method in one, the function's name:
// read_item_items__item_id__get is read_item. The id stays where two operations would get one name, and where the tool is
// published under it.
func (d *document) shorten(ops []*operation) {
	short, wanted := make([]string, len(ops)), map[string]int{}
	for i, op := range ops {
		name := op.name
		if op.ruled == "" || op.ruled == op.id {
			if short[i] = fastAPIName(op); short[i] != "" {
				name = short[i]
			}
		}
		wanted[name]++
	}
	for i, op := range ops {
		if short[i] == "" || d.opt.Previous != nil && d.opt.Previous(d.namespace+"."+op.name) != nil {
			continue
		}
		method, path := "", ""
		if wanted[short[i]] > 1 {
			method, path = d.wasAt(d.namespace + "." + short[i])
		}
		if wanted[short[i]] == 1 || method == op.method && path == op.template.sent {
			op.name = short[i]
		}
	}
}

// fastAPIName returns the name of the function in an id of FastAPI, "" for others.
func fastAPIName(op *operation) string {
	behind := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '_'
	}, op.path) + "_" + strings.ToLower(op.method)
	function, ok := strings.CutSuffix(op.id, behind)
	if name := catalog.Identifier(function); ok && len(name) <= maxName {
		return name
	}
	return ""
}
