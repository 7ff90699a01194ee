package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
	"github.com/spf13/cobra"
	"github.com/theory/jsonpath"
	"go.yaml.in/yaml/v3"

	"github.com/toolkeep/toolkeep/inspect"
	"github.com/toolkeep/toolkeep/suggest"
)

// output is in which form a command shows what it has: -o and --jq.
type output struct {
	form string // table, json, yaml or jsonpath; "" without -o
	path *jsonpath.Path
	jq   *inspect.Query
}

// forms are the values of -o; jsonpath has its expression after it.
var forms = []string{"table", "json", "yaml", "jsonpath="}

// machine reports whether a program is to read what is shown.
func (o *output) machine() bool { return o.jq != nil || o.form != "" && o.form != "table" }

// reshaped reports whether the JSON that is shown goes through an expression.
func (o *output) reshaped() bool { return o.jq != nil || o.path != nil }

// withJSON adds the flags that say in which form a command shows what it has: -o, --jq, and --json, which is -o json. A
// command that has --output as the name of a file gets --format in its place, and one that has --json as arguments keeps it.
func (a *app) withJSON(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	if f.Lookup("json") == nil {
		f.BoolVar(&a.json, "json", false, "print JSON, as -o json does")
	}
	name, short := "output", "o"
	if f.Lookup(name) != nil {
		name, short = "format", ""
		f.Lookup("json").Usage = "print JSON, as --format json does"
	}
	f.VarP((*formFlag)(&a.out), name, short, "`FORM`: table, json, yaml, or jsonpath=EXPR of RFC 9535; kubectl's braces are taken, and $ may be left out")
	f.Var((*jqFlag)(&a.out), "jq", "print what this jq `EXPR` makes of the JSON, a line for each value, text as it is")
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	_ = c.RegisterFlagCompletionFunc("jq", cobra.NoFileCompletions)
	return c
}

// checkOutput refuses flags that ask for two forms, and says that JSON is asked for where a form is made of it.
func (a *app) checkOutput(c *cobra.Command) error {
	f := c.Flags().Lookup("json")
	short := f != nil && f.Value.Type() == "bool" && f.Changed
	switch {
	case a.out.jq != nil && a.out.form != "" && a.out.form != "json":
		return usagef("--jq makes its own lines of the JSON: leave -o %s out", a.out.form)
	case short && a.out.form != "" && a.out.form != "json":
		return usagef("--json is -o json: leave it out, or -o %s", a.out.form)
	}
	a.json = a.json || a.out.machine()
	return nil
}

// formFlag is the value of -o.
type formFlag output

func (o *formFlag) String() string { return "" }
func (o *formFlag) Type() string   { return "form" }

func (o *formFlag) Set(text string) error {
	name, expr, has := strings.Cut(text, "=")
	switch {
	case name == "jsonpath" && has && expr != "":
		path, err := parsePath(expr)
		if err != nil {
			return err
		}
		o.form, o.path = name, path
		return nil
	case name == "jsonpath":
		return errors.New("jsonpath has its expression after a =, such as jsonpath='$.tools[*].tool_id'")
	case slices.Contains(forms, text):
		o.form, o.path = text, nil
		return nil
	}
	err := fmt.Errorf("%q is not a form; the forms are table, json, yaml and jsonpath=EXPR, and > writes to a file", text)
	if meant := suggest.Suggest(text, forms[:3]); meant != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, meant)
	}
	return err
}

// jqFlag is the value of --jq.
type jqFlag output

func (o *jqFlag) String() string { return "" }
func (o *jqFlag) Type() string   { return "jq" }

func (o *jqFlag) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("the expression is empty; write one such as '.tools[].tool_id'")
	}
	q, err := inspect.ParseQuery(text)
	if err != nil {
		return fmt.Errorf("%s is no jq expression, such as .tools[].tool_id: %w", text, err)
	}
	o.jq = q
	return nil
}

// show prints what a command has: the JSON unchanged or in the form that is asked for, else what human prints.
func (a *app) show(raw []byte, human func(w io.Writer) error) error {
	if a.json || a.out.machine() {
		return a.printJSON(raw)
	}
	return human(a.stdout)
}

// printJSON prints JSON in the form of the flags. Without one it is indented; numbers and order stay.
func (a *app) printJSON(raw []byte) error {
	text, err := a.out.render(raw)
	if err != nil {
		return err
	}
	return a.write(screenOf(a.stdout).clean(text))
}

func (a *app) write(text string) error {
	_, err := io.WriteString(a.stdout, text)
	return err
}

func (o *output) render(raw []byte) (string, error) {
	if !o.reshaped() && o.form != "yaml" {
		text, err := indent(raw)
		return text + "\n", err
	}
	var b strings.Builder
	if !json.Valid(raw) { // or deeper than a tree is read
		return "", notJSON(errors.New("it is cut or too deep"))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if o.form == "yaml" {
		root, err := nodeOf(d)
		if err != nil {
			return "", notJSON(err)
		}
		enc := yaml.NewEncoder(&b)
		enc.SetIndent(2)
		err = enc.Encode(root)
		return b.String(), err
	}
	var v any
	if err := d.Decode(&v); err != nil {
		return "", notJSON(err)
	}
	take := func(out any) error { return writeOutput(&b, out, maxAnswer) }
	run, name := func() error { return o.jq.Run(v, take) }, "--jq"
	if o.path != nil {
		run, name = func() error { return findPath(o.path, v, pathTime, take) }, "the jsonpath"
	}
	if err := run(); err != nil { // what was asked for may have had an effect
		return "", &failure{code: exitToolFailed, err: fmt.Errorf("the server has answered, and %s failed on the answer: %w", name, err)}
	}
	return b.String(), nil
}

// writeOutput writes one output of an expression: text as it is, the rest as JSON. It fails beyond most bytes of all.
func writeOutput(b *strings.Builder, out any, most int) error {
	text, ok := out.(string)
	if !ok {
		raw, err := gojq.Marshal(out)
		if err != nil {
			return err
		}
		if text, err = indent(raw); err != nil {
			return err
		}
	}
	if b.Len()+len(text) > most {
		return fmt.Errorf("what it makes is over %d MiB", most>>20)
	}
	b.WriteString(text + "\n")
	return nil
}

func notJSON(err error) error {
	return &failure{code: exitUnavailable, err: fmt.Errorf("the server's answer is not JSON: %w", err)}
}

// ambiguous are texts that a reader of YAML could take for something else.
var ambiguous = regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$|^[-+.]?[0-9]`)

// nodeOf reads a value as a tree with its order and its numbers' digits.
func nodeOf(d *json.Decoder) (*yaml.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if t == '[' {
			n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for d.More() {
			part, err := nodeOf(d) // of an object, its names and values in turn
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, part)
		}
		_, err := d.Token()
		return n, err
	case string:
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t}
		if ambiguous.MatchString(t) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n, nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// indent is JSON indented; numbers and order stay.
func indent(raw []byte) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(json.RawMessage(raw)); err != nil {
		return "", notJSON(err)
	}
	return strings.TrimRight(b.String(), "\n"), nil
}
