package sqltool

import (
	"regexp"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// Inserted text: a statement may hold {{.name}} where an argument's text stands as it is,
// as a name of a table, a part of the statement or the whole of it. Only a tool that reads
// may have it, with a login that the database holds to reading; the database enforces that
// for whatever the text says. {{array .name}} is a list with commas between; what stands
// between {{if .name}} and {{end}} is left out where the argument is empty.

var (
	inserted = regexp.MustCompile(`\{\{\s*(array\s+)?\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)
	optional = regexp.MustCompile(`(?s)\{\{\s*if\s+\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}(.*?)\{\{\s*end\s*\}\}`)
)

func (b *binding) readInsert(o *bindings.Object) []string {
	var names []string
	for _, v := range o.List("insert") {
		name, ok := v.(string)
		if !ok || name == "" {
			o.Fault("insert", "type", "insert is a list of names of arguments")
			return nil
		}
		names = append(names, name)
	}
	return names
}

// checkInsert allows inserted text only where the database enforces reading, in a tool of high risk.
func (b *binding) checkInsert(r *bindings.Reader, m *toolkeep.Manifest) {
	for i, st := range b.statements {
		switch at := b.at(i) + "/insert"; {
		case len(st.insert) == 0:
		case b.write:
			r.Fault(at, "conflict", "a tool that writes inserts no text of its caller into a statement; use parameters")
		case b.conn.superuser:
			r.Fault(at, "conflict", "with superuser: true the database does not hold the login to reading, so no text of a caller is inserted into a statement; use parameters")
		case m.Risk != "high":
			r.Fault("/risk", "conflict", "a tool that inserts text of its caller into a statement has risk: high")
		}
	}
}

// filled returns the statement with the texts of the arguments; nil stands for a name in
// their places, for a check. missing is a name that insert does not list, and unused one that only insert has.
func (s *statement) filled(texts map[string]string) (text, missing, unused string) {
	if len(s.insert) == 0 {
		return s.text, "", ""
	}
	used := make(map[string]bool, len(s.insert))
	text = optional.ReplaceAllStringFunc(s.text, func(part string) string {
		m := optional.FindStringSubmatch(part)
		if used[m[1]] = true; !slices.Contains(s.insert, m[1]) {
			missing = m[1]
		}
		if texts != nil && texts[m[1]] == "" {
			return ""
		}
		return m[2]
	})
	text = inserted.ReplaceAllStringFunc(text, func(place string) string {
		name := inserted.FindStringSubmatch(place)[2]
		if used[name] = true; !slices.Contains(s.insert, name) {
			missing = name
		}
		if texts == nil {
			return "x"
		}
		return texts[name]
	})
	for _, name := range s.insert {
		if !used[name] {
			unused = name
		}
	}
	return text, missing, unused
}

// complete returns the statements of one call: those with inserted text are checked again
// as a whole.
func (b *binding) complete(args map[string]any) ([]statement, *toolkeep.Error) {
	if !slices.ContainsFunc(b.statements, func(s statement) bool { return len(s.insert) > 0 }) {
		return b.statements, nil
	}
	out := slices.Clone(b.statements)
	for i := range out {
		st := &out[i]
		texts := make(map[string]string, len(st.insert))
		for _, name := range st.insert {
			text, ok := insertedText(args[name])
			if !ok {
				return nil, unfit(name, "is inserted into the statement and must be a text, or a list of texts for {{array}}")
			}
			texts[name] = text
		}
		if len(st.insert) == 0 {
			continue
		}
		st.text, _, _ = st.filled(texts)
		n, err := scan(b.dialect, st.text)
		why := ""
		switch {
		case len(st.text) > maxText:
			why = "makes the statement too long"
		case err != nil:
			why = "makes a statement that cannot be read: " + err.Error()
		case n.statements != 1:
			why = "must make exactly one statement"
		case n.params != len(st.params):
			why = "changes the number of placeholders"
		}
		if why != "" {
			return nil, unfit(strings.Join(st.insert, ", "), why)
		}
		st.insert = nil
	}
	return out, nil
}

func insertedText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			s, ok := e.(string)
			if !ok {
				return "", false
			}
			parts[i] = s
		}
		return strings.Join(parts, ", "), true
	}
	return "", false
}
