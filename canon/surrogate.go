package canon

import "bytes"

// MendSurrogates replaces each unpaired surrogate in JSON text, such as "\ud83d", with U+FFFD, in place.
// JSON.stringify writes them for text cut in the middle of a character; UTF-8 cannot hold them, and the parser
// refuses them (RFC 8259, 8.2, leaves it open). Everything else stays, even if it is not JSON.
func MendSurrogates(data []byte) {
	for i := 0; ; {
		n := bytes.IndexByte(data[i:], '\\')
		if n < 0 {
			return
		}
		i += n
		switch half := unit(data[i:]); {
		case half < 0xd800 || half > 0xdfff:
			i = min(i+2, len(data)) // the second backslash of \\ starts no escape
			continue
		case half < 0xdc00:
			if low := unit(data[i+6:]); low >= 0xdc00 && low <= 0xdfff {
				i += 12
				continue
			}
		}
		copy(data[i:], `\ufffd`)
		i += 6
	}
}

// unit returns the UTF-16 code unit of a leading \uXXXX in b, -1 if there is none.
func unit(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var v rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		v = v<<4 | rune(c)
	}
	return v
}
