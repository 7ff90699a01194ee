package openapi

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

// Choice says which operations of a document become tools and what these are called.
type Choice = catalog.Choice

// decide finds the choice that counts, and returns it where it is to be kept.
func (d *document) decide() (keep *Choice, err error) {
	var all map[string]Choice
	if d.opt.Choices != nil {
		if all, err = d.opt.Choices(d.namespace); err != nil {
			return nil, err
		}
	}
	last, known := all[d.title]
	if !known && len(all) > 0 && d.opt.Choice.Empty() {
		other := slices.Min(slices.Collect(maps.Keys(all)))
		return nil, importError("the namespace %s keeps a choice of the document %q and none of this one, %q; say what to take of it: --include 'path:*' takes every operation", d.namespace, toolkeep.ClipBytes(clean(other), 200), d.title)
	}
	settle := func(given, last []string) (counts, kept []string) {
		switch {
		case len(given) == 0:
			return last, last
		case len(given) == 1 && given[0] == "":
			return nil, nil
		}
		return given, nil
	}
	given := &d.opt.Choice
	d.choice.Include, d.kept.Include = settle(given.Include, last.Include)
	d.choice.Exclude, d.kept.Exclude = settle(given.Exclude, last.Exclude)
	d.choice.Names, d.kept.Names = settle(given.Names, last.Names)
	if !d.kept.Empty() {
		d.warn("the choice of the last import counts:%s; --include '', --exclude '' and --name-rule '' drop it", flagsOf(&d.kept))
	}
	if given.Empty() || known && d.choice.Equal(&last) {
		return nil, nil
	}
	return &d.choice, nil
}

// flagsOf writes a choice as flags.
func flagsOf(c *Choice) string {
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

// mending says how one text of a list is left out, which the last import may have chosen.
func (d *document) mending(flag, text string) string {
	kept := map[string][]string{"include": d.kept.Include, "exclude": d.kept.Exclude, "name-rule": d.kept.Names}[flag]
	if kept == nil {
		return "correct it, or leave it out"
	}
	rest := slices.DeleteFunc(slices.Clone(kept), func(s string) bool { return s == text })
	if len(rest) == 0 {
		rest = []string{""}
	}
	return "the last import chose it; repeat what of it counts still:" + flagsOf(map[string]*Choice{"include": {Include: rest}, "exclude": {Exclude: rest}, "name-rule": {Names: rest}}[flag])
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
type pattern struct{ flag, text, of, glob string }

func parsePatterns(flag string, list []string) (patterns []pattern, err error) {
	if len(list) > catalog.MaxPatterns {
		return nil, importError("there are more than %d patterns of --%s", catalog.MaxPatterns, flag)
	}
	for _, text := range list {
		of, glob, ok := strings.Cut(text, ":")
		if !ok || glob == "" || len(text) > catalog.MaxPattern || !slices.Contains([]string{"id", "path", "tag", "method"}, of) {
			return nil, importError("--%s %q is not a pattern: write id:, path:, tag: or method: and a text with * for any characters, such as id:list*, path:/v1/*, tag:pets or method:GET", flag, toolkeep.ClipBytes(clean(text), 100))
		}
		patterns = append(patterns, pattern{flag, text, of, glob})
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
				used[list[i].flag+list[i].text], any = true, true
			}
		}
		return any
	}
	for _, op := range ops {
		in, not := fits(include, op), fits(exclude, op)
		if (in || len(include) == 0) && !not {
			kept = append(kept, op)
		} else {
			op.out, out = true, append(out, op)
		}
	}
	for _, p := range slices.Concat(include, exclude) {
		if !used[p.flag+p.text] {
			return nil, nil, importError("the pattern %q fits no operation of the document; %s", toolkeep.ClipBytes(clean(p.text), 200), d.mending(p.flag, p.text))
		}
	}
	if len(kept) == 0 && len(ops) > 0 {
		return nil, nil, importError("--include and --exclude leave none of the %d operations", len(ops))
	}
	return kept, out, nil
}

// applyRules names operations by the rules of the choice.
func (d *document) applyRules(ops []*operation) error {
	if len(d.choice.Names) > catalog.MaxPatterns {
		return importError("there are more than %d rules of --name-rule", catalog.MaxPatterns)
	}
	for _, rule := range d.choice.Names {
		i := strings.LastIndexByte(rule, '=')
		if i < 1 || len(rule) > catalog.MaxPattern {
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
			ruled := from.ReplaceAllString(op.ruled, rule[i+1:])
			if named := catalog.Identifier(ruled) != "" && len(ruled) <= 1000; named {
				op.ruled = ruled
			} else if !op.out {
				return importError("--name-rule %q leaves no name for %s (%s)", toolkeep.ClipBytes(clean(rule), 100), toolkeep.ClipBytes(clean(op.id), 100), toolkeep.ClipBytes(clean(op.label()), 200))
			}
		}
		if !fits {
			return importError("--name-rule %q fits no operationId of the document; %s", toolkeep.ClipBytes(clean(rule), 100), d.mending("name-rule", rule))
		}
	}
	return nil
}

// shorten gives operations with ids of FastAPI, which are a function's name, the path and the method in one, the function's name:
// read_item_items__item_id__get is read_item. The id stays where two operations would get one name, where the tool is
// published under it, and where the short name is that of a tool from elsewhere.
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
		id := d.namespace + "." + short[i]
		method, path := d.wasAt(id)
		free := d.opt.Previous == nil || d.opt.Previous(id) == nil || d.ofThisDocument(id) != nil
		if wanted[short[i]] == 1 && free || method == op.method && path == op.template.sent {
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
