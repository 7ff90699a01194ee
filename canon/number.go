package canon

import (
	"encoding/json"
	"strconv"
	"strings"
)

// IsNumber reports whether s is a number by JSON's grammar: no plus sign, leading zeros, space, hexadecimal,
// Infinity or NaN.
func IsNumber(s string) bool {
	i := 0
	if i < len(s) && s[i] == '-' {
		i++
	}
	start := i
	i = digits(s, i)
	if i == start || s[start] == '0' && i > start+1 {
		return false
	}
	if i < len(s) && s[i] == '.' {
		from := i + 1
		if i = digits(s, from); i == from {
			return false
		}
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		from := i
		if i = digits(s, from); i == from {
			return false
		}
	}
	return i == len(s)
}

// IsInteger reports whether s is a JSON number without fraction and exponent.
func IsInteger(s string) bool {
	return IsNumber(s) && !strings.ContainsAny(s, ".eE")
}

// maxWhole bounds the digits that Whole writes.
const maxWhole = 400

// Whole returns the text of a whole number without fraction and exponent: 7 for 7.0 and 700 for 7e2. It returns
// false for a number that is not whole, that has over 400 digits, or that is written so already.
func Whole(n json.Number) (json.Number, bool) {
	s := string(n)
	if !strings.ContainsAny(s, ".eE") || !IsNumber(s) || !Bounded(n) {
		return n, false
	}
	d := toDecimal(s)
	switch {
	case d.digits == "":
		return "0", true
	case d.exp < len(d.digits) || d.exp > maxWhole:
		return n, false
	}
	s = d.digits + strings.Repeat("0", d.exp-len(d.digits))
	if d.neg {
		s = "-" + s
	}
	return json.Number(s), true
}

// Bounded reports whether the number's text has at most 1100 characters and an
// exponent within ±9999. Arbitrary-precision arithmetic over other numbers can
// take minutes; Parse refuses them.
func Bounded(n json.Number) bool {
	if len(n) <= 5 {
		return true
	}
	if len(n) > maxNumberText {
		return false
	}
	e := strings.IndexAny(string(n), "eE")
	if e < 0 {
		return true
	}
	exp, err := strconv.Atoi(string(n[e+1:]))
	return err == nil && -maxExponent <= exp && exp <= maxExponent
}

func digits(s string, i int) int {
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return i
}

// decimal is the value of a number's text: 0.digits * 10^exp, digits without leading or trailing zeros. Zero has no
// digits.
type decimal struct {
	digits string
	exp    int
	neg    bool
}

// toDecimal parses a number that IsNumber and Bounded accept.
func toDecimal(s string) decimal {
	var d decimal
	s, d.neg = strings.CutPrefix(s, "-")
	if e := strings.IndexAny(s, "eE"); e >= 0 {
		d.exp, _ = strconv.Atoi(s[e+1:])
		s = s[:e]
	}
	whole, frac, _ := strings.Cut(s, ".")
	d.exp += len(whole)
	all := whole + frac
	trimmed := strings.TrimLeft(all, "0")
	d.exp -= len(all) - len(trimmed)
	d.digits = strings.TrimRight(trimmed, "0")
	if d.digits == "" {
		return decimal{}
	}
	return d
}
