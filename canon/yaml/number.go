package yaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
)

// Limits of a number.
const (
	maxNumberLength = 128
	maxExponent     = 4 // digits
)

var (
	decimal  = regexp.MustCompile(`^([-+]?)([0-9]*)(\.?)([0-9]*)([eE][-+]?[0-9]+)?$`)
	radix    = regexp.MustCompile(`^[-+]?0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)$`)
	infinity = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

// Plain reads a scalar without quotes: nil, a bool, a json.Number or text. Lenient as in Options.
func Plain(s string, lenient bool) (any, error) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return nil, nil
	case "true", "True", "TRUE":
		return true, nil
	case "false", "False", "FALSE":
		return false, nil
	}
	if c := s[0]; (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' {
		return s, nil
	}
	if !lenient && infinity.MatchString(s) {
		return nil, errors.New("infinities and NaN cannot be kept as a JSON number; put a text in quotes")
	}
	digits := s
	if !lenient && s[0] != '.' {
		digits = strings.ReplaceAll(s, "_", "")
	}
	if radix.MatchString(digits) {
		return fromRadix(s, digits, lenient)
	}
	p := decimal.FindStringSubmatch(digits)
	if p == nil || p[2]+p[4] == "" {
		return s, nil
	}
	sign, whole, dot, fraction, exponent := p[1], p[2], p[3], p[4], p[5]
	zeros := len(whole) > 1 && whole[0] == '0'
	switch {
	case lenient && (zeros || len(s) > maxNumberLength):
		return s, nil
	case len(s) > maxNumberLength:
		return nil, fmt.Errorf("a number has more than %d characters; put a text in quotes", maxNumberLength)
	case zeros:
		return nil, errors.New("a number has leading zeros, which YAML versions read differently; put it in quotes or write 0o for octal")
	case !lenient && len(strings.TrimLeft(exponent, "eE+-")) > maxExponent:
		return nil, errors.New("a number with an exponent over 9999 cannot be kept; put a text in quotes")
	}
	if whole == "" {
		whole = "0"
	}
	if dot != "" && fraction == "" {
		fraction = "0"
	}
	return json.Number(strings.TrimPrefix(sign, "+") + whole + dot + fraction + exponent), nil
}

// fromRadix reads 0x1F, 0o17 and 0b101. YAML 1.2 knows the first two, in lower case and without a sign.
func fromRadix(s, digits string, lenient bool) (any, error) {
	if lenient && (len(s) > maxNumberLength || s[0] != '0' || s[1] != 'x' && s[1] != 'o') {
		return s, nil
	}
	if len(s) > maxNumberLength {
		return nil, fmt.Errorf("a number has more than %d characters; put a text in quotes", maxNumberLength)
	}
	i, ok := new(big.Int).SetString(digits, 0)
	if !ok {
		return s, nil
	}
	return json.Number(i.String()), nil
}
