package catalog

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/contracts"
	"github.com/toolkeep/toolkeep/pack"
	"github.com/toolkeep/toolkeep/schema"
)

// Limits of a manifest.
const (
	MaxManifestBytes = 1 << 20
	MaxManifestDepth = 64
	maxProperties    = 20_000 // in all objects of a manifest
	maxElements      = 100_000
)

// manifestSchema is compiled for the first manifest and constant from then on.
var manifestSchema = sync.OnceValues(func() (*schema.Schema, error) {
	return schema.Compile(contracts.ManifestSchema())
})

// ParseManifest parses and checks a manifest by contracts/manifest.schema.json, at most 1 MiB and 64 levels of
// JSON. The Tool has the defaults filled in, Raw in RFC 8785 form and Digest over Raw; its Tenant is empty.
//
// An absent object (retry, cache, result) counts as one with its defaults; an absent rate_limit stays nil, which
// means no limit.
//
// Errors: E3008, whose details.errors is a []toolkeep.Fault with all faults, ordered by JSON Pointer, within
// toolkeep.BoundFaults.
func ParseManifest(raw []byte) (*toolkeep.Tool, error) {
	c, err := Check(raw)
	if err != nil {
		return nil, err
	}
	return c.Tool(), nil
}

func parseTree(raw []byte) (any, error) {
	return canon.Parse(raw, canon.Limits{Bytes: MaxManifestBytes, Depth: MaxManifestDepth, Properties: maxProperties, Elements: maxElements})
}

// DecodeManifest decodes the RFC 8785 form of a manifest that was checked before (Tool.Raw) and fills in the
// defaults. It does not check again. Schemas and other raw values share raw's memory, which must not change any
// more.
func DecodeManifest(raw []byte) (*toolkeep.Manifest, error) { return Defaults{}.decode(raw) }

func (d Defaults) decode(raw []byte) (*toolkeep.Manifest, error) {
	m, err := pack.Decode(raw)
	if err != nil {
		return nil, err
	}
	shareRaw(m, raw)
	d.fill(m)
	return m, nil
}

// shareRaw points schemas and other raw values, which are most of a manifest, into raw instead of separate memory:
// a whole tool keeps both.
func shareRaw(m *toolkeep.Manifest, raw []byte) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if _, err := dec.ReadToken(); err != nil {
		return
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return
		}
		own, from := rawMember(m, name.String()), dec.InputOffset()+1 // after the colon
		if dec.SkipValue() != nil {
			return
		}
		to := dec.InputOffset()
		if own != nil && bytes.Equal(raw[from:to], *own) {
			*own = raw[from:to:to]
		}
	}
}

// rawMember returns the named member of m if m keeps it raw.
func rawMember(m *toolkeep.Manifest, name string) *stdjson.RawMessage {
	switch name {
	case "annotations":
		return &m.Annotations
	case "checkpoint":
		return &m.Checkpoint
	case "common_errors":
		return &m.CommonErrors
	case "document_dependencies":
		return &m.DocumentDependencies
	case "parameters_schema":
		return &m.ParametersSchema
	case "relationships":
		return &m.Relationships
	case "result_schema":
		return &m.ResultSchema
	}
	return nil
}

// invalid makes E3008 with the faults ordered by pointer.
func invalid(id, version string, faults []toolkeep.Fault) *toolkeep.Error {
	faults = sortFaults(faults)
	n := len(faults)
	faults = toolkeep.BoundFaults(faults)
	first := faults[0].Message
	if faults[0].Pointer != "" {
		first = faults[0].Pointer + ": " + first
	}
	what := "the manifest"
	if id != "" {
		what += " of " + toolkeep.ClipBytes(id, 200)
		if version != "" {
			what += "@" + toolkeep.ClipBytes(version, 200)
		}
	}
	if n == 1 {
		return toolkeep.FaultsError(toolkeep.InvalidManifest, what+" is not valid: "+first, faults)
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest,
		fmt.Sprintf("%s has %d faults, the first: %s", what, n, first), faults)
}

func sortFaults(faults []toolkeep.Fault) []toolkeep.Fault {
	slices.SortStableFunc(faults, func(a, b toolkeep.Fault) int { return strings.Compare(a.Pointer, b.Pointer) })
	return slices.Compact(faults)
}

// parseFault converts a parser's error to a fault, with the place if known.
func parseFault(err error) toolkeep.Fault {
	f := toolkeep.Fault{Rule: "json"}
	var semantic *json.SemanticError
	var own *toolkeep.Error
	switch {
	case errors.As(err, &own):
		f.Message = own.Message
		if p, ok := own.Details["pointer"].(string); ok {
			f.Pointer = p
		}
	case errors.As(err, &semantic):
		f.Pointer = string(semantic.JSONPointer)
		f.Rule = "type"
		f.Message = "the value does not fit here; numbers of this field are whole and below 2^53"
	default:
		f.Message = "this is not readable JSON"
	}
	return f
}

// text returns the string under key, "" if there is none.
func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
