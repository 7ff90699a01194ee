package mcp

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	wire "github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/promptscan"
)

// Limits of one Read.
const (
	defaultMaxTools = 10_000
	maxTotalBytes   = 256 << 20
	maxTime         = 60 * time.Second
	maxWarnings     = 500
	maxToolName     = 512 // bytes of a tool's own name
)

// definitionLimits bound one definition. It must fit into a manifest, and the time to compile a
// schema grows with the square of the number of its parts: 20,000 of them take a second.
var definitionLimits = canon.Limits{Bytes: catalog.MaxManifestBytes, Depth: catalog.MaxManifestDepth, Properties: 20_000, Elements: 20_000}

// Options of one Read. Server is required.
type Options struct {
	// Server is the server's name, which goes into the binding.
	Server string
	// Namespace is the part of the tool ids before the dot,
	// ^[a-z][a-z0-9-]{0,31}$; default Server.
	Namespace string
	// Previous returns the published version of a tool to compare with, or nil.
	Previous func(toolID string) *toolkeep.Tool
	// Published are the ids of the tools published from this server; those without a definition are
	// planned as gone.
	Published []string
	// Known are the tools of other servers, for Scan; nil: none.
	Known *Names
	// TrustAnnotations trusts the server's hints that make a tool easier to call: readOnlyHint
	// (side_effects reads) and idempotentHint. Hints that make it harder always count.
	TrustAnnotations bool
	// Timeout becomes the tool's own time limit; 0 leaves the default.
	Timeout time.Duration
	// MaxTools is how many definitions are read; default 10,000. The rest is left out with a
	// warning.
	MaxTools int
	// Withheld maps names of definitions to refuse to their reasons.
	Withheld map[string]string
}

// Plan is what an import would publish.
type Plan struct {
	Tools    []PlannedTool // in the order of the definitions, then those gone
	Refused  []Refused
	Warnings []string // what was left out of a tool, and where; at most 500
}

// Values of PlannedTool.Change besides those of Comparison.Bump.
const (
	ChangeNew       = "new"
	ChangeUnchanged = "unchanged"
	ChangeGone      = "gone"
)

// PlannedTool is one definition that becomes a tool, or a tool whose definition is gone.
type PlannedTool struct {
	ID      string `json:"tool_id"`
	Tool    string `json:"tool"` // the server's own name for it
	Version string `json:"version"`
	Change  string `json:"change"` // new, unchanged, patch, minor, major, gone
	// Additive is set for a changed tool if the definition only allows more: no text, promise or
	// requirement differs, and nothing new in it is a finding of severity high.
	Additive bool      `json:"additive,omitempty"`
	Digest   string    `json:"digest,omitempty"` // of the definition, "" if it is gone
	Findings []Finding `json:"findings,omitempty"`
	Manifest []byte    `json:"-"` // of an unchanged tool the published one, byte for byte; nil if the definition is gone
	// Checked is the manifest of a new or changed tool as publishing takes it; nil of others.
	Checked *catalog.Checked `json:"-"`
}

// Refused is one definition that does not become a tool.
type Refused struct {
	Index  int    `json:"index"`             // of the definition, from 0
	ID     string `json:"tool_id,omitempty"` // "" if it has no usable name
	Tool   string `json:"tool,omitempty"`
	Digest string `json:"digest,omitempty"` // of the definition; of its bytes if it has no RFC 8785 form
	Reason string `json:"reason"`
}

var namespacePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Read plans the import of a server's tool definitions, the elements of tools in a tools/list
// result. It changes nothing.
//
// Errors: E3011 for an invalid namespace, or if ctx ends. After 60 seconds, or 256 MiB of
// definitions, the rest is refused.
func Read(ctx context.Context, defs [][]byte, o Options) (*Plan, error) {
	if o.Namespace == "" {
		o.Namespace = o.Server
	}
	switch {
	case o.Server == "":
		return nil, importError("the MCP server has no name")
	case !namespacePattern.MatchString(o.Namespace):
		return nil, importError("the namespace %q does not match %s", promptscan.Visible(toolkeep.Clip(o.Namespace, 80)), namespacePattern)
	}
	r := &reader{o: o, until: time.Now().Add(maxTime), plan: &Plan{}, own: NewNames()}
	if max := r.maxTools(); len(defs) > max {
		r.warn("the server offers %d tools; the first %d are read and the others left out", len(defs), max)
		defs = defs[:max]
	}
	all := r.parse(defs)
	r.nameAll(all)
	for _, d := range all {
		if ctx.Err() != nil {
			return nil, importError("reading the definitions of %s was cancelled", o.Server).Because(ctx.Err())
		}
		if d.reason == "" && time.Now().After(r.until) {
			d.reason = fmt.Sprintf("reading all definitions takes longer than %s; this one was not read", maxTime)
		}
		r.plan1(d)
	}
	r.gone(all)
	return r.plan, nil
}

func importError(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ImportFailed, "%s", fmt.Sprintf(format, args...))
}

// Digest returns the digest that pins a definition, over its RFC 8785 form.
//
// Errors: those of canon.JCS.
func Digest(def []byte) (string, error) {
	canonical, err := canon.JCS(def)
	if err != nil {
		return "", err
	}
	return canon.Digest(canonical), nil
}

// definition is one definition being planned.
type definition struct {
	index  int
	raw    []byte
	tree   map[string]any
	digest string
	tool   string // its own name, "" if invalid
	name   string // the second half of its id
	reason string // why it is refused
}

func (d *definition) refuse(format string, args ...any) {
	if d.reason == "" {
		d.reason = fmt.Sprintf(format, args...)
	}
}

type reader struct {
	o     Options
	until time.Time
	plan  *Plan
	own   *Names // the names of this server's tools
}

func (r *reader) maxTools() int {
	if r.o.MaxTools > 0 {
		return r.o.MaxTools
	}
	return defaultMaxTools
}

func (r *reader) warn(format string, args ...any) {
	switch n := len(r.plan.Warnings); {
	case n < maxWarnings-1:
		r.plan.Warnings = append(r.plan.Warnings, fmt.Sprintf(format, args...))
	case n == maxWarnings-1:
		r.plan.Warnings = append(r.plan.Warnings, "there are more warnings, which are left out")
	}
}

// parse reads every definition. A refused one still gets its name if possible, so that its
// published tool does not count as gone, and so that nothing is renamed when the refusal goes away.
func (r *reader) parse(defs [][]byte) []*definition {
	var total int64
	seen := map[string]int{}
	all := make([]*definition, 0, len(defs))
	for i, raw := range defs {
		d := &definition{index: i, raw: raw}
		all = append(all, d)
		var err error
		switch total += int64(len(raw)); {
		case total > maxTotalBytes:
			d.refuse("the definitions of the server have more than %d MiB in all; this one was not read", maxTotalBytes>>20)
		case len(raw) == 0:
			d.refuse("the definition is empty")
		default:
			if d.tree, err = canon.ParseObject(raw, definitionLimits); err != nil {
				d.refuse("the definition cannot be read: %s", readFault(err))
			}
		}
		name := nameOf(d)
		switch first, twice := seen[name]; {
		case name == "":
			d.refuse("the definition has no name")
		case len(name) > maxToolName:
			d.refuse("the name has %d bytes; at most %d are read", len(name), maxToolName)
		case twice:
			d.refuse("the server offers %s twice; definition number %d stands", shown(name), first+1)
		default:
			seen[name], d.tool = i, name
			r.own.Add(r.o.Server, name)
		}
		if why := r.o.Withheld[name]; why != "" {
			d.refuse("%s", why)
		}
	}
	return all
}

// nameOf reads the name, even of a definition too large to be parsed.
func nameOf(d *definition) string {
	if d.tree != nil {
		name, _ := d.tree["name"].(string)
		return name
	}
	if wire.Check(d.raw, canon.Limits{}) != nil {
		return ""
	}
	return wire.Text(d.raw, "name")
}

func readFault(err error) string {
	e := toolkeep.AsError(err)
	if p, _ := e.Details["pointer"].(string); p != "" {
		return "at " + promptscan.Visible(toolkeep.Clip(p, 200)) + ": " + e.Message
	}
	return e.Message
}

// plan1 plans one definition's tool, or refuses it. A panic of the reader refuses only that
// definition.
func (r *reader) plan1(d *definition) {
	tool := func() (tool *PlannedTool) {
		defer func() {
			if p := recover(); p != nil {
				tool = nil
				d.reason = "a bug in the importer, please report it: " + toolkeep.Clip(fmt.Sprint(p), 300)
			}
		}()
		if d.reason != "" {
			return nil
		}
		return r.tool(d)
	}()
	if tool != nil {
		r.plan.Tools = append(r.plan.Tools, *tool)
		return
	}
	refused := Refused{Index: d.index, Tool: d.tool, Digest: d.digest, Reason: d.reason}
	if d.name != "" {
		refused.ID = r.o.Namespace + "." + d.name
	}
	if refused.Digest == "" {
		refused.Digest = canon.Digest(d.raw)
	}
	r.plan.Refused = append(r.plan.Refused, refused)
}

// gone plans the published tools without a definition. A refused definition is not gone.
func (r *reader) gone(all []*definition) {
	here := make(map[string]bool, len(all))
	for _, d := range all {
		if d.name != "" {
			here[r.o.Namespace+"."+d.name] = true
		}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(r.o.Published))) {
		if here[id] {
			continue
		}
		t := PlannedTool{ID: id, Change: ChangeGone}
		if old := r.previous(id); old != nil {
			t.Version, t.Tool = old.Version, toolOf(old)
		}
		r.plan.Tools = append(r.plan.Tools, t)
	}
}

func (r *reader) previous(id string) *toolkeep.Tool {
	if r.o.Previous == nil {
		return nil
	}
	return r.o.Previous(id)
}
