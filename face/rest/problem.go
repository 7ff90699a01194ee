package rest

import (
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/toolkeep/toolkeep"
)

// fromHuma turns what huma's validator found into our error; values that were
// sent are not echoed, they may be secrets.
func fromHuma(m *huma.ErrorModel) error {
	if m.Status >= 500 {
		return toolkeep.AsError(m)
	}
	code, faults := toolkeep.InvalidParameters, make([]toolkeep.Fault, 0, len(m.Errors))
	for _, d := range m.Errors {
		f := toolkeep.Fault{Pointer: pointer(d.Location), Rule: "schema", Message: d.Message}
		switch {
		case strings.HasPrefix(d.Message, "unexpected property"), strings.HasPrefix(d.Message, "unknown query parameter"):
			f.Rule, code = "unknown", toolkeep.MalformedRequest
		case strings.HasPrefix(d.Message, "expected required property"), strings.Contains(d.Message, "parameter is missing"):
			f.Rule = "required"
			if code == toolkeep.InvalidParameters {
				code = toolkeep.MissingParameter
			}
		case d.Message == validation.MsgExpectedMatchExactlyOneSchema:
			// contextText alone has a choice of schemas.
			f.Rule, f.Message = "type", wantsText
		case strings.HasPrefix(d.Message, "json:"):
			// The body was parsed before, so a number is all that can go wrong.
			f.Rule, f.Message = "range", "a number is out of the range of a double"
		}
		faults = append(faults, f)
	}
	if len(faults) == 0 {
		return toolkeep.NewError(toolkeep.MalformedRequest, "%s", m.Detail)
	}
	msg := faults[0].Message
	if at := m.Errors[0].Location; at != "" {
		msg = at + ": " + msg
	}
	if n := len(faults) - 1; n > 0 {
		msg += " (and " + strconv.Itoa(n) + " more)"
	}
	return toolkeep.FaultsError(code, msg, faults)
}

// pointer turns huma's body.a[0].b into /a/0/b; query.page stays a name.
func pointer(location string) string {
	rest, ok := strings.CutPrefix(location, "body")
	if !ok {
		return location
	}
	return strings.NewReplacer("~", "~0", "/", "~1", ".", "/", "[", "/", "]", "").Replace(rest)
}
