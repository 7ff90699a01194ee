package builtin

import (
	"context"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
)

const (
	maxDigits   = 400  // of an operand
	maxExponent = 400  // of an operand, positive or negative
	maxResult   = 1000 // characters of a result
)

// arithmetic calculates exactly, with fractions, and rounds only results whose decimal
// form has no end.
func arithmetic(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	list, _ := x.Args["numbers"].([]any)
	if len(list) < 2 || len(list) > 100 {
		return nil, bad("/numbers", "minItems", "numbers must be 2 to 100 numbers")
	}
	var sum *big.Rat
	for i, el := range list {
		at := "/numbers/" + strconv.Itoa(i)
		r, ok := rational(el)
		if !ok {
			return nil, bad(at, "type", "must be a decimal number of at most 400 digits and an exponent up to 400")
		}
		if i == 0 {
			sum = r
			continue
		}
		switch text(x.Args, "operation", "") {
		case "add":
			sum.Add(sum, r)
		case "subtract":
			sum.Sub(sum, r)
		case "multiply":
			sum.Mul(sum, r)
		case "divide":
			if r.Sign() == 0 {
				return nil, bad(at, "not", "a number cannot be divided by zero")
			}
			sum.Quo(sum, r)
		default:
			return nil, bad("/operation", "enum", "operation is one of add, subtract, multiply and divide")
		}
	}
	digits, exact := sum.FloatPrec()
	if !exact || digits > maxResult {
		digits, exact = int(min(max(integer(x.Args, "decimals", 20), 0), 100)), false
	}
	value := sum.FloatString(digits)
	if strings.ContainsRune(value, '.') {
		value = strings.TrimRight(strings.TrimRight(value, "0"), ".")
	}
	if value == "-0" {
		value = "0"
	}
	if len(value) > maxResult {
		return nil, bad("/numbers", "maximum", "the result has over 1000 digits")
	}
	out := map[string]any{"value": json.Number(value), "exact": exact}
	if fraction := sum.RatString(); len(fraction) <= maxResult {
		out["fraction"] = fraction
	}
	return out, nil
}

// rational parses a number, or a string that holds one. It checks the size first:
// 1e999999999 would fill the memory.
func rational(v any) (*big.Rat, bool) {
	var s string
	switch t := v.(type) {
	case json.Number:
		s = string(t)
	case string:
		s = t
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	if s == "" || len(mantissa) > maxDigits || strings.Trim(mantissa, "0123456789.-+") != "" || mantissa == "" {
		return nil, false
	}
	if strings.ContainsAny(strings.ToLower(s), "e") {
		n, err := strconv.Atoi(exponent)
		if err != nil || n > maxExponent || n < -maxExponent {
			return nil, false
		}
	}
	return new(big.Rat).SetString(s)
}
