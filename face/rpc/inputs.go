package rpc

import (
	"math"
	"slices"
	"strconv"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/toolkeep/toolkeep"
)

// loose accepts any JSON: the pipeline's parser refuses what this pass does not check, with its own
// code (E3311).
var loose = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// joinInputs joins JSON-serialised values into one object. A value that is not JSON becomes a
// string if isText allows it; all others are reported together.
func joinInputs(inputs map[string]string, isText func(name string) bool) ([]byte, *toolkeep.Error) {
	n := 2
	for k, v := range inputs {
		n += len(k) + len(v) + 4
	}
	b := append(make([]byte, 0, n), '{')
	var bad []string
	for name, value := range inputs {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, name)
		b = append(b, ':')
		switch {
		case isJSON(value):
			b = append(b, value...)
		case isText(name):
			b, _ = jsontext.AppendQuote(b, value)
		default:
			bad = append(bad, name)
		}
	}
	if bad == nil {
		return append(b, '}'), nil
	}
	slices.Sort(bad)
	faults := make([]toolkeep.Fault, len(bad))
	for i, name := range bad {
		faults[i] = toolkeep.Fault{Pointer: pointer(name), Rule: "json",
			Message: "the value is not JSON, and the tool's schema does not say that it is text"}
	}
	return nil, toolkeep.FaultsError(toolkeep.MalformedRequest,
		"inputs."+clip(bad[0], 100)+" is not JSON: send each value JSON-serialised, as 3 or \"text\" with its quotes", faults)
}

// isJSON reports whether s is one JSON value. Plain numbers and quoted words, the most common
// inputs, need no parser.
func isJSON(s string) bool {
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' && plain(s[1:n-1]) {
		return true
	}
	return jsontext.Value(s).IsValid(loose...)
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

func pointer(name string) string {
	return string(jsontext.Pointer("").AppendToken(name))
}

// textual returns which properties of a parameters schema may be strings: those whose type includes
// string, also in a list of types or below anyOf and oneOf. Schemas are checked when published; one
// that does not parse has no strings.
func textual(schema []byte) func(name string) bool {
	type alternative struct {
		Type jsontext.Value `json:"type"`
	}
	var s struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	if strict.Unmarshal(schema, &s) != nil {
		return func(string) bool { return false }
	}
	saysString := func(v jsontext.Value) bool {
		var one string
		var several []string
		return strict.Unmarshal(v, &one) == nil && one == "string" ||
			strict.Unmarshal(v, &several) == nil && slices.Contains(several, "string")
	}
	return func(name string) bool {
		var p struct {
			alternative
			AnyOf []alternative `json:"anyOf"`
			OneOf []alternative `json:"oneOf"`
		}
		if strict.Unmarshal(s.Properties[name], &p) != nil {
			return false
		}
		if len(p.Type) > 0 {
			return saysString(p.Type)
		}
		return slices.ContainsFunc(append(p.AnyOf, p.OneOf...), func(a alternative) bool { return saysString(a.Type) })
	}
}

const (
	exact    = 1<<53 - 1 // the largest integer up to which a double is exact
	maxDepth = 500       // far above the pipeline's limit, which has its own message
)

// joinParameters writes a Struct as JSON.
func joinParameters(s *structpb.Struct) ([]byte, *toolkeep.Error) {
	return appendStruct(nil, s, "", 0)
}

func appendStruct(b []byte, s *structpb.Struct, at string, depth int) ([]byte, *toolkeep.Error) {
	names := make([]string, 0, len(s.GetFields()))
	for name := range s.GetFields() {
		names = append(names, name)
	}
	slices.Sort(names)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, name)
		b = append(b, ':')
		var err *toolkeep.Error
		if b, err = appendValue(b, s.Fields[name], at+pointer(name), depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, v *structpb.Value, at string, depth int) ([]byte, *toolkeep.Error) {
	if depth > maxDepth {
		return nil, toolkeep.NewError(toolkeep.InvalidEncoding, "parameters are nested more than %d deep", maxDepth)
	}
	switch k := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		return append(b, "null"...), nil
	case *structpb.Value_BoolValue:
		return strconv.AppendBool(b, k.BoolValue), nil
	case *structpb.Value_StringValue:
		b, _ = jsontext.AppendQuote(b, k.StringValue)
		return b, nil
	case *structpb.Value_NumberValue:
		return appendNumber(b, k.NumberValue, at)
	case *structpb.Value_StructValue:
		return appendStruct(b, k.StructValue, at, depth)
	case *structpb.Value_ListValue:
		b = append(b, '[')
		for i, e := range k.ListValue.GetValues() {
			if i > 0 {
				b = append(b, ',')
			}
			var err *toolkeep.Error
			if b, err = appendValue(b, e, at+"/"+strconv.Itoa(i), depth+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	return nil, toolkeep.FaultsError(toolkeep.MalformedRequest, "parameters"+at+" has no value: set its kind",
		[]toolkeep.Fault{{Pointer: at, Rule: "json", Message: "the value's kind is not set"}})
}

func appendNumber(b []byte, f float64, at string) ([]byte, *toolkeep.Error) {
	whole := f == math.Trunc(f)
	if math.IsNaN(f) || whole && math.Abs(f) > exact {
		return nil, toolkeep.FaultsError(toolkeep.MalformedRequest,
			"parameters"+at+" is a number that a Struct cannot hold exactly: send it in inputs", []toolkeep.Fault{{Pointer: at, Rule: "exact",
				Message: "whole numbers beyond 2^53-1, infinities and NaN cannot be told apart from their neighbours"}})
	}
	if whole {
		return strconv.AppendInt(b, int64(f), 10), nil
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64), nil
}
