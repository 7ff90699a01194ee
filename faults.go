package toolkeep

import "fmt"

// Limits of the faults that one error or answer lists.
const (
	MaxFaults     = 100      // without the one that counts the rest
	MaxFaultBytes = 64 << 10 // of pointers, rules and messages
	maxFaultText  = 2 << 10  // bytes of one pointer or message
)

// RuleLimit is the rule of the fault that counts those left out, and of a check that a
// limit ended.
const RuleLimit = "limit"

// Fault is a single fault in a document, an argument or a result.
type Fault struct {
	Pointer string `json:"pointer"` // JSON Pointer (RFC 6901) into the checked value; "" is the whole
	Rule    string `json:"rule"`    // the violated keyword or rule, such as "required" or "maximum"
	Message string `json:"message"` // what is wrong and what would be right

	leftOut int // of MoreFaults: how many it counts
}

// MoreFaults is the fault that counts n others that are left out of a list.
func MoreFaults(n int) Fault {
	return Fault{Rule: RuleLimit, Message: fmt.Sprintf("and %d more faults", n), leftOut: n}
}

// LeftOut is how many faults a fault of MoreFaults counts, and 0 for any other.
func (f Fault) LeftOut() int { return f.leftOut }

// CountFaults is how many faults there are, with those that a list leaves out.
func CountFaults(faults []Fault) (n int) {
	for _, f := range faults {
		n += max(f.leftOut, 1)
	}
	return n
}

// Faults returns details.errors: a list of faults or, once cleaned or read from a record, of objects. It is nil for
// anything else.
func (e *Error) Faults() (faults []Fault) {
	switch list := e.Details["errors"].(type) {
	case []Fault:
		return list
	case []any:
		for _, it := range list {
			m, ok := it.(map[string]any)
			if !ok {
				return nil
			}
			text := func(k string) string { s, _ := m[k].(string); return s }
			faults = append(faults, Fault{Pointer: text("pointer"), Rule: text("rule"), Message: text("message")})
		}
	}
	return faults
}

// BoundFaults returns the first faults of a list, at most MaxFaults and MaxFaultBytes, with
// pointers and messages of at most 2 KiB; MoreFaults stands for the rest.
func BoundFaults(faults []Fault) []Fault { return ShareFaults(faults, 1) }

// ShareFaults is BoundFaults with an n-th of the limits and at least one fault, for one of n
// lists in the same answer.
func ShareFaults(faults []Fault, n int) []Fault {
	most, left := max(MaxFaults/max(n, 1), 1), MaxFaultBytes/max(n, 1)
	text := min(maxFaultText, left/4)
	out, rest, full := make([]Fault, 0, min(len(faults), most)+1), 0, false
	for _, f := range faults {
		if f.leftOut > 0 {
			rest += f.leftOut
			continue
		}
		f.Pointer, f.Rule, f.Message = ClipBytes(f.Pointer, text), ClipBytes(f.Rule, text), ClipBytes(f.Message, text)
		left -= len(f.Pointer) + len(f.Rule) + len(f.Message)
		if full = full || len(out) == most || left < 0 && len(out) > 0; full {
			rest++
			continue
		}
		out = append(out, f)
	}
	if rest > 0 {
		out = append(out, MoreFaults(rest))
	}
	return out
}

// FaultsError returns an error whose details.errors list the faults, as BoundFaults has them.
func FaultsError(code Code, summary string, faults []Fault) *Error {
	return NewError(code, "%s", summary).With("errors", BoundFaults(faults))
}

// FaultError is FaultsError with one fault, which the message gives with its place.
func FaultError(code Code, message string, fault Fault) *Error {
	e := FaultsError(code, message, []Fault{fault})
	e.FaultSaid = true
	return e
}
