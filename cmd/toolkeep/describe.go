package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
)

func (a *app) describeCmd() *cobra.Command {
	c := &cobra.Command{
		Use:               "describe TOOL[@VERSION]",
		Short:             "Show a tool: parameters, effects, versions, examples",
		Example:           "  toolkeep describe bookshop.createOrder\n  toolkeep describe std.hash@1.0.0 --json",
		Args:              arguments(1, 1, "the tool's id, such as std.hash"),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			id, rng, err := splitRef(args[0])
			if err != nil {
				return err
			}
			var t describedTool
			raw, refused := cl.get(cmd.Context(), "/api/v1/tools/"+url.PathEscape(id)+"?version="+url.QueryEscape(rng), &t)
			var all versionList
			if _, err := cl.get(cmd.Context(), "/api/v1/tools/"+url.PathEscape(id)+"/versions", &all); err != nil {
				return err
			}
			if refused != nil { // such as a blocked version; the other versions may help
				if !a.json {
					all.print(a.stdout, id)
				}
				return refused
			}
			return a.show(raw, func(w io.Writer) error {
				on := screenOf(w)
				b := &page{columns: on.columns}
				t.print(b, on.terminal)
				fmt.Fprintln(b)
				all.print(b, id)
				_, err := io.WriteString(w, printable(b.String(), "\n"))
				return err
			})
		},
	}
	return a.withJSON(c)
}

type versionList struct {
	Versions []struct {
		Version   string             `json:"version"`
		Lifecycle toolkeep.Lifecycle `json:"lifecycle"`
	} `json:"versions"`
}

func (l *versionList) print(w io.Writer, id string) {
	fmt.Fprintf(w, "Versions of %s:\n", id)
	for _, v := range l.Versions {
		fmt.Fprintf(w, "  %s  %s\n", v.Version, lifeLine(v.Lifecycle))
	}
}

type describedTool struct {
	ToolID         string             `json:"tool_id"`
	Version        string             `json:"version"`
	Digest         string             `json:"digest"`
	Lifecycle      toolkeep.Lifecycle `json:"lifecycle"`
	Callable       *bool              `json:"callable"` // nil from servers before it was told
	Manifest       toolkeep.Manifest  `json:"manifest"`
	Authentication *authentication    `json:"authentication"`
}

// print prints a tool; lines join the parts of its parameters.
func (t *describedTool) print(w io.Writer, lines bool) {
	m := &t.Manifest
	fmt.Fprintf(w, "%s@%s  %s\n%s\n\n%s\n", t.ToolID, t.Version, lifeLine(t.Lifecycle), t.Digest, strings.TrimSpace(m.Description))
	// The manifest is as published, without the schema's defaults.
	fmt.Fprintf(w, "\nSide effects: %s   Risk: %s   Category: %s   Kind: %s   Timeout: %s\n", or(m.SideEffects, "writes"), or(m.Risk, "low"),
		or(m.Category, "utility"), m.Execution.Kind, m.Timeout())
	if len(m.Tags) > 0 {
		fmt.Fprintf(w, "Tags: %s\n", strings.Join(m.Tags, ", "))
	}
	if t.Callable != nil && !*t.Callable {
		fmt.Fprintf(w, "You may not call it: toolkeep explain %s says why\n", t.ToolID)
	}
	for _, s := range m.Auth {
		secret := s.Secret
		if secret == "" && s.Type != "none" {
			secret = "no secret named; import again with --secret"
		}
		fmt.Fprintf(w, "Authenticates by: %s %s (%s)\n", s.Type, s.Name, secret)
	}
	if t.Authentication != nil {
		fmt.Fprintf(w, "Its secret for you: %s\n", t.Authentication)
	}
	printParameters(w, m.ParametersSchema, lines)
	for _, e := range m.Examples {
		fmt.Fprintf(w, "\nExample: %s\n  toolkeep call %s --json %s\n", e.Scenario, t.ToolID, quote(string(e.Input)))
	}
}

// Limits of the tree of parameters that describe shows.
const (
	maxParameterLines = 60
	maxParameterDepth = 5 // of objects within a parameter, such as a request's body
)

// shape is the part of a JSON Schema that says what a value holds.
type shape struct {
	Ref         string                     `json:"$ref"` // of what readShape returned: name of its definition
	Defs        map[string]json.RawMessage `json:"$defs"`
	Type        any                        `json:"type"`
	Enum        []any                      `json:"enum"`
	Description string                     `json:"description"`
	Default     any                        `json:"default"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required"`
	Items       json.RawMessage            `json:"items"`
	Others      json.RawMessage            `json:"additionalProperties"`
	AllOf       []json.RawMessage          `json:"allOf"`
	OneOf       []json.RawMessage          `json:"oneOf"`
	AnyOf       []json.RawMessage          `json:"anyOf"`
}

// parameterTree prints what the value of a schema holds, what is within it indented, and on a terminal joined by lines.
type parameterTree struct {
	row   func(...any)
	defs  map[string]json.RawMessage
	lines bool
	room  int      // rows that may follow
	reads int      // schemas that may be read, one more for each 1,000 bytes: definitions can name each other any number of times
	left  bool     // there is more than room for
	open  []string // definitions that the row is within
}

// read reads a schema, follows its reference into $defs, and adds what the parts of an allOf say. A schema that says
// nothing, such as true, has an empty shape.
func (t *parameterTree) read(raw json.RawMessage, depth int) (s shape) {
	if t.reads -= 1 + len(raw)/1000; t.reads < 0 || depth > maxParameterDepth || json.Unmarshal(raw, &s) != nil {
		t.left = t.left || t.reads < 0
		return shape{}
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		to := t.read(t.defs[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)], depth+1)
		to.Ref, to.Description = name, or(s.Description, to.Description)
		return to
	}
	s.Ref = ""
	for _, part := range s.AllOf {
		p := t.read(part, depth+1)
		if s.Properties == nil {
			s.Properties = map[string]json.RawMessage{}
		}
		maps.Copy(s.Properties, p.Properties)
		s.Required = append(s.Required, p.Required...)
	}
	return s
}

// add prints a row for each member of a shape, of the objects in a list for one of those, for any other name of a map,
// and for each form of which a value has one. Of a definition within itself the name alone is shown.
func (t *parameterTree) add(s shape, indent string, depth int) {
	for range maxParameterDepth {
		if len(s.Items) > 0 && len(s.Properties) == 0 {
			s = t.read(s.Items, 0)
		}
	}
	if s.Ref != "" && slices.Contains(t.open, s.Ref) {
		return
	}
	t.open = append(t.open, s.Ref)
	defer func() { t.open = t.open[:len(t.open)-1] }()
	type branch struct {
		name   string
		schema json.RawMessage
	}
	var all []branch
	for _, name := range sortedKeys(s.Properties) {
		all = append(all, branch{name, s.Properties[name]})
	}
	if s.namesOthers() {
		all = append(all, branch{"(any name)", s.Others})
	}
	for i, form := range slices.Concat(s.OneOf, s.AnyOf) {
		all = append(all, branch{[]string{"either", "or"}[min(i, 1)], form})
	}
	for i, b := range all {
		if t.room == 0 || depth > maxParameterDepth {
			t.left = true
			return
		}
		t.room--
		joint, below, required := "", "  ", ""
		switch {
		case t.lines && depth == 0:
			below = ""
		case t.lines && i < len(all)-1:
			joint, below = "├─ ", "│  "
		case t.lines:
			joint, below = "└─ ", "   "
		}
		if slices.Contains(s.Required, b.name) {
			required = "yes"
		}
		of := t.read(b.schema, 0)
		typ, text := of.line()
		t.row(indent+joint+b.name, typ, required, text)
		t.add(of, indent+below, depth+1)
	}
}

// namesOthers reports whether a shape says what members of any other name hold.
func (s *shape) namesOthers() bool {
	return bytes.HasPrefix(s.Others, []byte("{")) && !bytes.Equal(s.Others, []byte("{}"))
}

// line is type and description of a shape.
func (s *shape) line() (typ, text string) {
	switch t := s.Type.(type) {
	case string:
		typ = t
	case []any:
		typ = strings.ReplaceAll(strings.Trim(fmt.Sprint(t), "[]"), " ", "|")
	}
	typ = or(s.Ref, or(typ, "any"))
	if len(s.Enum) > 0 {
		typ = toolkeep.Clip(strings.Trim(fmt.Sprint(s.Enum), "[]"), 40)
	}
	text = strings.Join(strings.Fields(s.Description), " ")
	if s.Default != nil {
		text += fmt.Sprintf(" (default %v)", s.Default)
	}
	return typ, text
}

// printParameters prints the parameters of a tool.
func printParameters(w io.Writer, schema json.RawMessage, lines bool) {
	var top shape
	if json.Unmarshal(schema, &top) != nil {
		return
	}
	t := parameterTree{defs: top.Defs, lines: lines, room: maxParameterLines, reads: 100 * maxParameterLines}
	top = t.read(schema, 0)
	if len(top.Properties)+len(top.OneOf)+len(top.AnyOf) == 0 && !top.namesOthers() && !t.left {
		return
	}
	fmt.Fprintln(w, "\nParameters:")
	_ = table(w, "  NAME|TYPE|REQUIRED|DESCRIPTION", func(row func(...any)) {
		t.row = row
		t.add(top, "  ", 0)
	})
	if t.left {
		fmt.Fprintln(w, "  and more; --json shows all")
	}
}
