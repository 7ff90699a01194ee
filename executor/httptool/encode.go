package httptool

import "strings"

// escaping defines which characters besides letters, digits and -._~ are not encoded.
type escaping struct {
	keep string
	plus bool // a space is +
	none bool // nothing is encoded
}

var (
	escStrict   = escaping{}
	escReserved = escaping{keep: ":/?@!$'()*,="}
	escPath     = escaping{keep: ":@!$&'()*+,;="}
	escForm     = escaping{plus: true}
	escNone     = escaping{none: true}
)

// without returns the escaping that also encodes chars.
func (e escaping) without(chars string) escaping {
	if strings.ContainsAny(e.keep, chars) {
		e.keep = strings.Map(func(r rune) rune {
			if strings.ContainsRune(chars, r) {
				return -1
			}
			return r
		}, e.keep)
	}
	return e
}

const upperHex = "0123456789ABCDEF"

// append appends s percent-encoded.
func (e escaping) append(dst []byte, s string) []byte {
	if e.none {
		return append(dst, s...)
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case isAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~':
			dst = append(dst, c)
		case c == ' ' && e.plus:
			dst = append(dst, '+')
		case e.keep != "" && strings.IndexByte(e.keep, c) >= 0:
			dst = append(dst, c)
		default:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

// escapeLiteral encodes characters of a path template that are invalid in a path.
// Encoded characters stay.
func escapeLiteral(s string) string {
	dst := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case isAlnum(c) || strings.IndexByte("-._~!$&'()*+,;=:@/", c) >= 0:
			dst = append(dst, c)
		case c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			dst = append(dst, c)
		default:
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(dst)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
