package schema

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math/big"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Types of the library's set.
var (
	typeNull    = typeBit("null")
	typeBoolean = typeBit("boolean")
	typeNumber  = typeBit("number")
	typeInteger = typeBit("integer")
	typeString  = typeBit("string")
	typeArray   = typeBit("array")
	typeObject  = typeBit("object")
)

func typeBit(name string) jsonschema.Types {
	var t jsonschema.Types
	t.Add(name)
	return t
}

func hasType(t jsonschema.Types, v any) bool {
	switch v.(type) {
	case nil:
		return t&typeNull != 0
	case bool:
		return t&typeBoolean != 0
	case string:
		return t&typeString != 0
	case []any:
		return t&typeArray != 0
	case map[string]any:
		return t&typeObject != 0
	}
	return t&typeNumber != 0 || t&typeInteger != 0 && isInteger(v)
}

func isInteger(v any) bool {
	text := numberText(v)
	if !strings.ContainsAny(text, ".eE") {
		return true
	}
	n, ok := new(big.Rat).SetString(text)
	return ok && n.IsInt()
}

func (r *run) among(v any, values []any) bool {
	for _, want := range values {
		if r.equal(v, want) {
			return true
		}
	}
	return false
}

// equal compares as JSON Schema does: numbers by their value.
func (r *run) equal(a, b any) bool {
	r.spend(1)
	switch a := a.(type) {
	case nil:
		return b == nil
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case string:
		b, ok := b.(string)
		if !ok || len(a) != len(b) {
			return false
		}
		r.spendText(len(a))
		return a == b
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !r.equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, el := range a {
			other, has := b[name]
			if !has || !r.equal(el, other) {
				return false
			}
		}
		return true
	}
	if !hasType(typeNumber, b) {
		return false
	}
	x, y := numberText(a), numberText(b)
	if x == y {
		return true
	}
	m, small := smallInteger(a)
	n, bothSmall := smallInteger(b)
	if small && bothSmall {
		return m == n
	}
	return r.rational(a).Cmp(r.rational(b)) == 0
}

// fewElements is up to where each element is compared with each.
const fewElements = 20

// duplicate finds two equal elements.
func (r *run) duplicate(list []any) (i, j int, found bool) {
	if len(list) <= fewElements {
		for j := range list {
			for i := range j {
				if r.equal(list[i], list[j]) {
					return i, j, true
				}
			}
		}
		return 0, 0, false
	}
	var h maphash.Hash
	byHash := map[uint64][]int{}
	for j, el := range list {
		h.Reset()
		r.hash(&h, el)
		sum := h.Sum64()
		for _, i := range byHash[sum] {
			if r.equal(list[i], el) {
				return i, j, true
			}
		}
		byHash[sum] = append(byHash[sum], j)
	}
	return 0, 0, false
}

// hash writes equal bytes for equal values.
func (r *run) hash(h *maphash.Hash, v any) {
	r.spend(1)
	switch v := v.(type) {
	case nil:
		_ = h.WriteByte('n')
	case bool:
		_ = h.WriteByte('b')
		if v {
			_ = h.WriteByte('1')
		}
	case string:
		r.spendText(len(v))
		_ = h.WriteByte('s')
		_, _ = h.WriteString(v)
		_ = h.WriteByte(0)
	case []any:
		_ = h.WriteByte('a')
		for _, el := range v {
			r.hash(h, el)
		}
		_ = h.WriteByte('e')
	case map[string]any:
		_ = h.WriteByte('o')
		for _, name := range sortedKeys(v) {
			r.hash(h, name)
			r.hash(h, v[name])
		}
		_ = h.WriteByte('e')
	default:
		_ = h.WriteByte('f')
		f, _ := strconv.ParseFloat(numberText(v), 64) // equal numbers round alike
		if f == 0 {
			f = 0 // and not -0
		}
		maphash.WriteComparable(h, f)
	}
}

// compare compares a number with a bound, without big numbers where both are small.
func (r *run) compare(v any, bound *big.Rat) int {
	if n, ok := smallInteger(v); ok && bound.IsInt() && bound.Num().IsInt64() {
		switch b := bound.Num().Int64(); {
		case n < b:
			return -1
		case n > b:
			return 1
		}
		return 0
	}
	return r.rational(v).Cmp(bound)
}

func (r *run) multiple(v any, of *big.Rat) bool {
	if n, ok := smallInteger(v); ok && of.IsInt() && of.Num().IsInt64() && of.Sign() != 0 {
		return n%of.Num().Int64() == 0
	}
	return of.Sign() != 0 && new(big.Rat).Quo(r.rational(v), of).IsInt()
}

// rational returns a number exactly. The caller has refused those that take long (canon.Bounded).
func (r *run) rational(v any) *big.Rat {
	text := numberText(v)
	r.spend(1 + len(text)/4)
	if e := strings.IndexAny(text, "eE"); e >= 0 {
		if exp, err := strconv.Atoi(text[e+1:]); err == nil {
			r.spend(max(exp, -exp) / 2)
		}
	}
	if n, ok := new(big.Rat).SetString(text); ok {
		return n
	}
	return new(big.Rat)
}

func numberText(v any) string {
	if n, ok := v.(json.Number); ok {
		return string(n)
	}
	return fmt.Sprint(v)
}

// smallInteger returns an integer written with at most 18 digits.
func smallInteger(v any) (int64, bool) {
	text := numberText(v)
	if len(text) > 18 {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}
