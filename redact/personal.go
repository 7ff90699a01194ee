package redact

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep/canon"
)

// Personal is a set of kinds of personal data that are found by their form.
type Personal uint8

const (
	email Personal = 1 << iota // name@host.tld
	phone                      // +49 30 1234567, (212) 555-0123, 212-555-0123
	card                       // 13 to 19 digits whose last is right by Luhn's rule
	ssn                        // 078-05-1120, as the United States give them
	iban                       // ISO 13616, with right check digits
	ip                         // IPv4 and IPv6
)

// PersonalKinds are the names of all kinds.
var PersonalKinds = []string{"email", "phone", "card", "ssn", "iban", "ip"}

// PersonalOf returns the set of names; an unknown one is an error.
func PersonalOf(names []string) (set Personal, err error) {
	for _, n := range names {
		i := slices.Index(PersonalKinds, n)
		if i < 0 {
			return 0, fmt.Errorf("%q is no kind of personal data; there are %s", n, strings.Join(PersonalKinds, ", "))
		}
		set |= 1 << i
	}
	return set, nil
}

// Clean replaces each finding in a text with its kind, such as [email]. It finds forms, not meanings: a
// number that happens to be right by Luhn's rule is taken for a card's, and a phone's number without a plus or
// the separators of North America is not found. It costs one pass, in which only an @, a digit, a plus, a colon and a
// capital letter are looked at further.
func (set Personal) Clean(text string) string {
	var out strings.Builder
	done := 0 // of text, written to out
	for i := 0; i < len(text); {
		if !noticed[text[i]] || text[i] != '@' && within(text, i) {
			i++
			continue
		}
		from, to, kind := set.at(text, i, done)
		if kind == 0 {
			i++
			continue
		}
		out.WriteString(text[done:from])
		out.WriteString(kind.label())
		done, i = to, to
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

func (set Personal) label() string {
	for i, name := range PersonalKinds {
		if set == 1<<i {
			return "[" + name + "]"
		}
	}
	return ""
}

// CleanValue returns a JSON value in which texts, keys and numbers are cleaned. It does not change v.
func (set Personal) CleanValue(v any) any {
	if set == 0 {
		return v
	}
	switch v := v.(type) {
	case string:
		return set.Clean(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, member := range v {
			out[set.Clean(k)] = set.CleanValue(member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = set.CleanValue(e)
		}
		return out
	case nil, bool:
		return v
	}
	if text := string(canon.Append(nil, v)); set&card != 0 && len(text) >= 13 && set.Clean(text) != text {
		return set.Clean(text)
	}
	return v
}

// noticed are the bytes at which a finding is noticed.
var noticed = func() (is [256]bool) {
	for _, c := range []byte("@+(:0123456789abcdefABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		is[c] = true
	}
	return is
}()

// at returns the finding at a place, kind 0 for none. An e-mail address is found at its @ and may begin
// before it, at done or later.
func (set Personal) at(text string, i, done int) (from, to int, kind Personal) {
	c := text[i]
	if c == '@' {
		if set&email == 0 {
			return 0, 0, 0
		}
		from, to = mailAt(text, i, done)
		return from, to, found(to, email)
	}
	if i > 1 && (text[i-1] == '.' || text[i-1] == '-') && digit(text[i-2]) {
		return 0, 0, 0 // within a number
	}
	for _, k := range [...]Personal{iban, card, ssn, ip, phone} {
		if set&k != 0 {
			if n := k.end(c, text[i:]); n > 0 {
				return i, i + n, k
			}
		}
	}
	return 0, 0, 0
}

// end returns the end of the finding at the beginning of a text, 0 for none; c is its first byte.
func (set Personal) end(c byte, text string) int {
	switch {
	case set == iban && upper(c):
		return ibanEnd(text)
	case set == card && digit(c):
		return cardEnd(text)
	case set == ssn && digit(c):
		return ssnEnd(text)
	case set == ip && (hexDigit(c) || c == ':'):
		return ipEnd(text)
	case set == phone && !letter(c) && c != ':':
		return phoneEnd(text)
	}
	return 0
}

func found(to int, kind Personal) Personal {
	if to == 0 {
		return 0
	}
	return kind
}

func digit(c byte) bool    { return c >= '0' && c <= '9' }
func upper(c byte) bool    { return c >= 'A' && c <= 'Z' }
func letter(c byte) bool   { return upper(c) || c >= 'a' && c <= 'z' }
func hexDigit(c byte) bool { return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }
func word(c byte) bool     { return digit(c) || letter(c) || c == '_' || c >= 0x80 }

// within reports whether a place is in a word or number. The letter of an escape, as in JSON that is cleaned as a
// text, is not of a word.
func within(text string, i int) bool {
	return i > 0 && word(text[i-1]) && !(i > 1 && text[i-2] == '\\' && strings.IndexByte("nrtbf", text[i-1]) >= 0)
}

// ends reports whether a finding of n bytes is not the beginning of a longer word or number.
func ends(text string, n int) bool { return n == len(text) || !word(text[n]) }

// Longest parts of an address by RFC 5321.
const (
	maxLocal  = 64
	maxDomain = 255
)

func mailAt(text string, at, done int) (from, to int) {
	from = at
	for from > done && at-from < maxLocal && local(text[from-1]) {
		from--
	}
	for from < at && text[from] == '.' {
		from++
	}
	if from == at {
		return 0, 0
	}
	dot, end := -1, 0
	for to = at + 1; to < len(text) && to-at <= maxDomain; to++ {
		c := text[to]
		switch {
		case c == '.' && to > at+1 && text[to-1] != '.':
			dot = to
			continue
		case c == '-' || digit(c) || letter(c) || c >= 0x80:
			if dot > 0 && to-dot >= 2 {
				end = to + 1
			}
			continue
		}
		break
	}
	return from, end
}

func local(c byte) bool { return word(c) || strings.IndexByte(".!#$%&'*+-/=?^`{|}~", c) >= 0 }

// maxDigits is the most digits of a finding, and one more.
const maxDigits = 20

// digits reads up to maxDigits digits with separators between them, gap of them at most in a row. end has where
// each ends.
func digits(text, separators string, gap int) (list [maxDigits]byte, end [maxDigits]int, n int) {
	last := 0
	for i := 0; i < len(text) && n < maxDigits; i++ {
		switch {
		case digit(text[i]):
			last = i + 1
			list[n], end[n] = text[i], last
			n++
		case last > 0 && i < last+gap && strings.IndexByte(separators, text[i]) >= 0:
		default:
			return list, end, n
		}
	}
	return list, end, n
}

func cardEnd(text string) int {
	list, end, n := digits(text, " -", 1)
	for n = min(n, 19); n >= 13; n-- { // a date or a check number may follow
		if ends(text, end[n-1]) && luhn(list[:n]) {
			return end[n-1]
		}
	}
	return 0
}

// luhn reports whether the last digit is right for the others, which are not all the same.
func luhn(list []byte) bool {
	sum, same := 0, true
	for i, c := range list {
		d := int(c - '0')
		if (len(list)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
		same = same && c == list[0]
	}
	return sum%10 == 0 && !same
}

func ssnEnd(text string) int {
	const form = "ddd-dd-dddd"
	if len(text) < len(form) || !ends(text, len(form)) || text[:3] == "000" || text[:3] == "666" || text[0] == '9' || text[4:6] == "00" || text[7:11] == "0000" {
		return 0
	}
	return formEnd(text, form)
}

// formEnd compares a text with a form in which d is a digit.
func formEnd(text, form string) int {
	if len(text) < len(form) {
		return 0
	}
	for i := range len(form) {
		if form[i] == 'd' && !digit(text[i]) || form[i] != 'd' && form[i] != text[i] {
			return 0
		}
	}
	if !ends(text, len(form)) {
		return 0
	}
	return len(form)
}

func ibanEnd(text string) int {
	if len(text) < 15 || !upper(text[1]) || !digit(text[2]) || !digit(text[3]) {
		return 0
	}
	var all []byte
	end := 0
	for i := 0; i < len(text) && len(all) < 34; i++ {
		switch c := text[i]; {
		case digit(c) || upper(c):
			all = append(all, c)
			end = i + 1
		case c == ' ' && len(all)%4 == 0 && end == i:
		default:
			i = len(text)
		}
	}
	// Words after it may look like its last groups.
	for ; len(all) >= 15; end-- {
		if !digit(text[end-1]) && !upper(text[end-1]) {
			continue
		}
		if ends(text, end) && mod97(all) == 1 {
			return end
		}
		all = all[:len(all)-1]
	}
	return 0
}

func mod97(account []byte) int {
	rest := 0
	for i := range account {
		c := account[(i+4)%len(account)]
		if digit(c) {
			rest = (rest*10 + int(c-'0')) % 97
		} else {
			rest = (rest*100 + int(c-'A') + 10) % 97
		}
	}
	return rest
}

func ipEnd(text string) int {
	n, colons, dots := 0, 0, 0
	for n < len(text) && n < len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255") && (hexDigit(text[n]) || text[n] == ':' || text[n] == '.') {
		switch text[n] {
		case ':':
			colons++
		case '.':
			dots++
		}
		n++
	}
	for n > 0 && text[n-1] == '.' { // the end of a sentence
		n--
	}
	if n > 1 && text[n-1] == ':' && text[n-2] != ':' { // before what is said of it
		n--
	}
	if colons < 2 && dots < 3 || !ends(text, n) {
		return 0
	}
	for _, end := range []int{n, strings.IndexByte(text[:n], ':')} { // with a port after it
		if end <= 0 {
			continue
		}
		if a, err := netip.ParseAddr(text[:end]); err == nil && !(a.Is6() && a.IsUnspecified()) {
			return end
		}
	}
	return 0
}

func phoneEnd(text string) int {
	if text[0] == '+' {
		_, end, n := digits(text[1:], " -().", 2)
		if n < 8 || n > 15 || !ends(text[1:], end[n-1]) {
			return 0
		}
		return 1 + end[n-1]
	}
	for _, form := range []string{"(ddd) ddd-dddd", "ddd-ddd-dddd", "ddd.ddd.dddd", "d-ddd-ddd-dddd", "d.ddd.ddd.dddd", "d (ddd) ddd-dddd"} {
		if n := formEnd(text, form); n > 0 {
			return n
		}
	}
	return 0
}
