package catalog

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/pack"
)

// Checked is a manifest that passed the checks of Check. It is immutable.
type Checked struct {
	tool toolkeep.Tool // of no tenant; its manifest has no defaults
}

// Check checks a manifest as ParseManifest does, with the same errors. An import that checks its manifests publishes
// them with PublishChecked, which does not repeat that.
func Check(raw []byte) (*Checked, error) {
	if len(raw) > MaxManifestBytes {
		return nil, tooLarge(len(raw))
	}
	tree, err := parseTree(raw)
	if err != nil {
		return nil, invalid("", "", []toolkeep.Fault{parseFault(err)}).Because(err)
	}
	canonical, inexact := canon.JCSOf(tree, len(raw))
	s, err := manifestSchema()
	if err != nil {
		return nil, toolkeep.AsError(err)
	}
	faults := s.Validate(context.Background(), tree)
	root, _ := tree.(map[string]any) // nil is reported by the schema
	faults = append(faults, checkMeaning(root)...)
	if inexact != nil {
		faults = append(faults, parseFault(inexact))
	}
	id, version := text(root, "tool_id"), text(root, "version")
	if len(faults) > 0 {
		return nil, invalid(id, version, faults)
	}
	m, err := pack.Decode(canonical)
	if err != nil {
		return nil, invalid(id, version, []toolkeep.Fault{parseFault(err)}).Because(err)
	}
	shareRaw(m, canonical)
	return &Checked{toolkeep.Tool{ID: m.ToolID, Version: m.Version, Digest: canon.Digest(canonical), Manifest: m, Raw: canonical}}, nil
}

func tooLarge(n int) *toolkeep.Error {
	return invalid("", "", []toolkeep.Fault{{Rule: "size", Message: fmt.Sprintf("the manifest has %d bytes; at most %d are read", n, MaxManifestBytes)}})
}

// Raw returns the manifest in RFC 8785 form.
func (c *Checked) Raw() []byte { return c.tool.Raw }

// Tool returns the tool that ParseManifest returns.
func (c *Checked) Tool() *toolkeep.Tool { return c.with(Defaults{}) }

func (c *Checked) with(d Defaults) *toolkeep.Tool {
	t, m := c.tool, *c.tool.Manifest
	d.fill(&m)
	t.Manifest = &m
	return &t
}

// Renumbered returns the same manifest under another version, which must be SemVer.
//
// Errors: E3008 if the version is not SemVer, or the manifest has more than MaxManifestBytes with it.
func (c *Checked) Renumbered(version string) (*Checked, error) {
	check := &check{}
	if check.version(map[string]any{"version": version}); len(check.faults) > 0 {
		return nil, invalid(c.tool.ID, version, check.faults)
	}
	from, to, err := memberAt(c.tool.Raw, "version")
	if err != nil {
		return nil, toolkeep.AsError(err)
	}
	raw := make([]byte, 0, len(c.tool.Raw)+len(version))
	raw = append(raw, c.tool.Raw[:from]...)
	raw = append(strconv.AppendQuote(raw, version), c.tool.Raw[to:]...) // SemVer is ASCII without quotes
	if len(raw) > MaxManifestBytes {
		return nil, tooLarge(len(raw))
	}
	t, m := c.tool, *c.tool.Manifest
	m.Version = version
	shareRaw(&m, raw)
	t.Version, t.Raw, t.Digest, t.Manifest = version, raw, canon.Digest(raw), &m
	return &Checked{t}, nil
}

// memberAt returns where the value of a member of an object begins and ends.
func memberAt(raw []byte, name string) (from, to int, err error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if _, err := dec.ReadToken(); err != nil {
		return 0, 0, err
	}
	for dec.PeekKind() == '"' {
		member, err := dec.ReadToken()
		if err != nil {
			return 0, 0, err
		}
		found := member.String() == name
		value, err := dec.ReadValue()
		if err != nil {
			return 0, 0, err
		}
		if found {
			to := int(dec.InputOffset())
			return to - len(value), to, nil
		}
	}
	return 0, 0, fmt.Errorf("the manifest has no %s", name)
}
