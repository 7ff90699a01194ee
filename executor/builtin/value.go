package builtin

import (
	"encoding/json"
	"math/big"
	"strconv"

	"github.com/toolkeep/toolkeep/canon"
)

// text returns a string argument, or fallback if absent.
func text(args map[string]any, name, fallback string) string {
	if s, ok := args[name].(string); ok {
		return s
	}
	return fallback
}

func flag(args map[string]any, name string) bool {
	b, _ := args[name].(bool)
	return b
}

// integer returns an integer argument, or fallback if it is absent or out of range. 5.0
// and 5e0 are integers too.
func integer(args map[string]any, name string, fallback int64) int64 {
	n, ok := args[name].(json.Number)
	if !ok {
		return fallback
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	if !canon.Bounded(n) || len(n) > 64 {
		return fallback
	}
	r, ok := new(big.Rat).SetString(string(n))
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return fallback
	}
	return r.Num().Int64()
}

func number(i int64) json.Number { return json.Number(strconv.FormatInt(i, 10)) }

// atLeast returns a lower bound for the size of v's JSON, for the limit on results; it
// stops counting above limit.
func atLeast(v any, limit int64) int64 {
	switch t := v.(type) {
	case string:
		return int64(len(t)) + 2
	case json.Number:
		return int64(len(t))
	case []any:
		n := int64(2)
		for _, el := range t {
			if n += atLeast(el, limit-n) + 1; n > limit {
				break
			}
		}
		return n
	case map[string]any:
		n := int64(2)
		for k, el := range t {
			if n += int64(len(k)) + 4 + atLeast(el, limit-n); n > limit {
				break
			}
		}
		return n
	}
	return 4
}
