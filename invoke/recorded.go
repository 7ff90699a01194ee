package invoke

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

// Limits in bytes of what a record holds of an error.
const (
	maxRecordedFaults  = 4 << 10
	maxRecordedRefusal = 4 << 10 // details of a call that was not executed, without its faults
	maxRecordedMessage = 4 << 10
	maxRecordedName    = 256 // a pointer, or the name and range of a tool that was not found
)

// recordedError is the recorded form of an error. Neither values nor names of arguments that
// the tool does not define are recorded of a refusal. What an executed call brought back is
// kept as its executor bounded it: an answer is repeated from its record.
func (p *Pipeline) recordedError(a *activeCall, e *toolkeep.Error) (message string, details json.RawMessage) {
	message = toolkeep.ClipBytes(e.Message, maxRecordedMessage)
	faults, shown := slices.Clone(e.Faults()), maps.Clone(e.Details)
	delete(shown, "errors")
	if e.Code.Info().Kind != toolkeep.KindResult {
		known := p.knownPointer(a.tool)
		if at, ok := shown["pointer"].(string); ok {
			shown["pointer"] = known(at)
		}
		shown = within(shown, maxRecordedRefusal)
		quotes := len(a.faults) > 0 || a.tool == nil // the messages have what the caller sent
		if len(a.faults) > 0 {
			faults = slices.Clone(a.faults)
		}
		for i := range faults {
			if faults[i].Pointer = known(faults[i].Pointer); quotes && faults[i].LeftOut() == 0 {
				faults[i].Message = ""
			}
		}
		if quotes && len(faults) > 0 {
			message = fmt.Sprintf("the arguments do not fit %s: rule %s at %q", toolRef(a), faults[0].Rule, faults[0].Pointer)
			if n := toolkeep.CountFaults(faults); n > 1 {
				message += fmt.Sprintf(", %d faults in all", n)
			}
		}
	}
	if len(faults) > 0 {
		if shown == nil {
			shown = map[string]any{}
		}
		shown["errors"] = recordedFaults(faults)
	}
	if len(shown) == 0 {
		return message, nil
	}
	raw, err := jsonv2.Marshal(shown, jsonv2.Deterministic(true))
	if err != nil {
		return message, nil
	}
	return message, raw
}

func toolRef(a *activeCall) string {
	if a.tool == nil {
		return toolkeep.ClipBytes(a.row.ToolID, maxRecordedName)
	}
	return a.tool.Ref()
}

// knownPointer returns what writes "*" for the names that a tool's arguments do not define.
func (p *Pipeline) knownPointer(t *toolkeep.Tool) func(string) string {
	s := &schema.Schema{}
	if t != nil {
		if own, err := p.Schemas.Get(t.Digest, t.Manifest.ParametersSchema); err == nil {
			s = own
		}
	}
	return func(pointer string) string { return toolkeep.ClipBytes(s.Known(pointer), maxRecordedName) }
}

// recordedFaults are the first faults within maxRecordedFaults, and how many there are
// beyond.
func recordedFaults(faults []toolkeep.Fault) []any {
	kept, left := []any{}, maxRecordedFaults
	for i, f := range faults {
		one := map[string]any{"pointer": toolkeep.ClipBytes(f.Pointer, maxRecordedName), "rule": f.Rule}
		if f.Message != "" {
			one["message"] = f.Message
		}
		if left -= len(canon.Append(nil, one)) + 1; left < 64 { // room for the count
			return append(kept, map[string]any{"pointer": "", "rule": toolkeep.RuleLimit, "message": toolkeep.MoreFaults(toolkeep.CountFaults(faults[i:])).Message})
		}
		kept = append(kept, one)
	}
	return kept
}

// within returns the details without those that are too large to be kept, the smallest first.
func within(details map[string]any, limit int) map[string]any {
	sizes := make(map[string]int, len(details))
	for k, v := range details {
		raw, err := jsonv2.Marshal(v)
		if err != nil {
			raw = make([]byte, limit)
		}
		sizes[k] = len(raw) + len(k) + 4
	}
	names := slices.SortedFunc(maps.Keys(details), func(a, b string) int { return cmp.Or(sizes[a]-sizes[b], cmp.Compare(a, b)) })
	for _, k := range names {
		if limit -= sizes[k]; limit < 0 {
			delete(details, k)
		}
	}
	return details
}
