package redact

import (
	"encoding/base64"
	"strings"
)

// anchors marks the bytes that trigger a matcher. Each is a byte of the token that is rare in ordinary text.
var anchors = func() (t [256]bool) {
	for _, c := range []byte("_-:KSJBbz.") {
		t[c] = true
	}
	return t
}()

// findTokens appends the spans of text that looks like a secret. more means that text goes on: what may become a token
// is one then, to the end of text. open tells which bytes go on with the token that the text ends in; nil if it ends in
// none.
func findTokens(text string, spans []span, more bool) (all []span, open func(byte) bool) {
	t := tokens{text: text, more: more}
	for i := 0; i < len(text); i++ {
		if !anchors[text[i]] {
			continue
		}
		if m, ok := t.at(i); ok {
			spans = appendSpan(spans, m)
			if i = max(i, m.end-1); more && m.end == len(text) {
				open = t.member
			}
		}
	}
	return spans, open
}

// tokens remembers how far failed matches have scanned, so that a text of prefixes alone takes linear time.
type tokens struct {
	text                       string
	more                       bool            // the text goes on after its end
	member                     func(byte) bool // of the last run
	deadSK, deadJWT, deadBasic int
}

// run returns the first position from i on whose byte is not a member.
func (t *tokens) run(i int, member func(byte) bool) int {
	t.member = member
	return run(t.text, i, member)
}

// cut reports whether a run to end may go on after the text.
func (t *tokens) cut(end int) bool { return t.more && end == len(t.text) }

func (t *tokens) at(i int) (span, bool) {
	text := t.text
	switch text[i] {
	case '_':
		return t.underscoreToken(i)
	case '-':
		switch {
		case strings.HasPrefix(text[i:], pemBegin):
			return t.pemKey(i)
		case i >= 4 && text[i-4:i-1] == "xox" && strings.IndexByte("abcdeprs", text[i-1]) >= 0: // Slack
			m, ok := t.prefixed(i, text[i-4:i], func(c byte) bool { return isTokenByte(c) || c == '%' }, 20)
			return m, ok && (hasDigit(text[i:m.end]) || t.cut(m.end))
		}
		return t.skKey(i)
	case 'z':
		return t.googleKey(i)
	case '.': // Google's access tokens, ya29.…
		return t.prefixed(i, "ya29", isJWTByte, 20)
	case ':':
		return t.urlPassword(i)
	case 'K':
		switch before := text[:i]; {
		case strings.HasSuffix(before, "SecretAccess"):
			return t.awsSecret(i + len("Key"))
		case strings.HasSuffix(before, "Account"), strings.HasSuffix(before, "SharedAccess"): // Azure's connection strings
			if strings.HasPrefix(text[i:], "Key=") {
				return t.base64(i+len("Key="), 40)
			}
			return span{}, false
		}
		return t.awsKeyID(i)
	case 'S':
		return t.awsKeyID(i)
	case 'J':
		return t.jwt(i)
	}
	return t.authorization(i)
}

func (t *tokens) underscoreToken(i int) (span, bool) {
	text := t.text
	switch before := text[:i]; {
	case strings.HasSuffix(before, "tk"):
		return t.prefixed(i, "tk", isTokenByte, 16)
	case strings.HasSuffix(before, "tks"):
		return t.prefixed(i, "tks", isTokenByte, 16)
	case strings.HasSuffix(before, "github_pat"):
		return t.prefixed(i, "github_pat", isWordByte, 20)
	case len(before) >= 3 && before[i-3:i-1] == "gh" && strings.IndexByte("pousr", before[i-1]) >= 0:
		return t.prefixed(i, before[i-3:], isAlnum, 20)
	case len(before) >= 13 && strings.EqualFold(before[i-13:], "secret_access") && hasFold(text[i+1:], "key"):
		return t.awsSecret(i + len("_key"))
	}
	return span{}, false
}

// prefixed finds a token that starts with prefix and the byte at i.
func (t *tokens) prefixed(i int, prefix string, member func(byte) bool, least int) (span, bool) {
	text := t.text
	start := i - len(prefix)
	if start < 0 || text[start:i] != prefix || !atBoundary(text, start) {
		return span{}, false
	}
	end := t.run(i+1, member)
	return span{start, end}, end-i-1 >= least
}

// skKey finds sk-…; a digit distinguishes a key from words such as sk-learn-compatible.
func (t *tokens) skKey(i int) (span, bool) {
	if i < t.deadSK {
		return span{}, false
	}
	m, ok := t.prefixed(i, "sk", isTokenByte, 16)
	if ok && !t.cut(m.end) && !hasDigit(t.text[i:m.end]) {
		t.deadSK = m.end
		return span{}, false
	}
	return m, ok
}

// awsKeyID finds AKIA… and ASIA… by their second letter.
func (t *tokens) awsKeyID(i int) (span, bool) {
	text := t.text
	start := i - 1
	if start < 0 || text[start] != 'A' || !strings.HasPrefix(text[i+1:], "IA") || !atBoundary(text, start) {
		return span{}, false
	}
	end := t.run(i+3, func(c byte) bool { return 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' })
	return span{start, end}, end-start == 20
}

// base64 finds at least so many characters of base64 at i, which may be escaped as in URLs.
func (t *tokens) base64(i, least int) (span, bool) {
	end := t.run(i, func(c byte) bool { return isTokenByte(c) || strings.IndexByte("+/=%", c) >= 0 })
	return span{i, end}, end-i >= least || end > i && t.cut(end)
}

// googleKey finds AIza and 35 characters.
func (t *tokens) googleKey(i int) (span, bool) {
	text, start := t.text, i-2
	if start < 0 || text[start:i] != "AI" || !strings.HasPrefix(text[i+1:], "a") || !atBoundary(text, start) {
		return span{}, false
	}
	t.member = isTokenByte
	end := run(text[:min(len(text), i+38)], i+1, isTokenByte)
	return span{start, end}, end-start == 39
}

// awsSecret finds the 40 characters after the name of an AWS secret key that ends at i.
func (t *tokens) awsSecret(i int) (span, bool) {
	text := t.text
	if i > len(text) {
		return span{}, false
	}
	start := t.run(i, func(c byte) bool { return strings.IndexByte(" \t\"'\\:=>", c) >= 0 })
	end := t.run(start, func(c byte) bool { return isAlnum(c) || c == '+' || c == '/' || c == '\\' })
	return span{start, end}, start-i <= 8 && end-start >= 40
}

// jwt finds header.payload.signature, whose header is an object and therefore starts with eyJ; i is at the J.
func (t *tokens) jwt(i int) (span, bool) {
	text, start := t.text, i-2
	if start < t.deadJWT || text[start:i] != "ey" || !atBoundary(text, start) {
		return span{}, false
	}
	first := run(text, i, isTokenByte)
	if t.cut(first) {
		return span{start, t.run(first, isJWTByte)}, true
	}
	if first >= len(text) || text[first] != '.' {
		t.deadJWT = first
		return span{}, false
	}
	second := run(text, first+1, isTokenByte)
	if first-start < 10 || second-first < 10 && !t.cut(second) {
		return span{}, false
	}
	end := t.run(second, isJWTByte)
	return span{start, end}, true
}

// authorization finds the credential after "Bearer " and "Basic ".
func (t *tokens) authorization(i int) (span, bool) {
	text := t.text
	if hasFold(text[i:], "bearer") {
		start, end := t.credential(i + len("bearer"))
		n := end - start
		return span{start, end}, n >= 20 || n >= 8 && hasDigit(text[start:end])
	}
	if i >= t.deadBasic && hasFold(text[i:], "basic") {
		start, end := t.credential(i + len("basic"))
		if start < end && t.cut(end) {
			return span{start, end}, true
		}
		code := strings.TrimRight(strings.ReplaceAll(text[start:end], `\`, ""), "=")
		plain, err := base64.RawStdEncoding.DecodeString(code)
		if err == nil && end-start >= 8 && strings.IndexByte(string(plain), ':') >= 0 {
			return span{start, end}, true
		}
		t.deadBasic = end
	}
	return span{}, false
}

// credential returns the bounds of the token after the space at i; both are equal if there is none.
func (t *tokens) credential(i int) (start, end int) {
	text := t.text
	start = run(text, i, func(c byte) bool { return c == ' ' || c == '+' })
	if start == i && strings.HasPrefix(text[i:], "%20") {
		start = i + 3
	}
	if start == i || start-i > 4 {
		return i, i
	}
	return start, t.run(start, func(c byte) bool { return isTokenByte(c) || strings.IndexByte(`.~+/=%\`, c) >= 0 })
}

const (
	pemBegin = "-----BEGIN "
	maxPEM   = 64 << 10 // search limit for the last line of a key
)

// pemKey finds a private key from its first line to its last. If the text was cut before the last line, it redacts
// the key's characters.
func (t *tokens) pemKey(i int) (span, bool) {
	text := t.text
	head := text[i+len(pemBegin) : min(len(text), i+len(pemBegin)+48)]
	label, _, ok := strings.Cut(head, "-----")
	if !ok || !strings.HasSuffix(label, "PRIVATE KEY") {
		return span{}, false
	}
	body := i + len(pemBegin) + len(label) + 5
	window := text[body:min(len(text), body+maxPEM)]
	if n := strings.Index(window, "-----END "+label+"-----"); n >= 0 {
		t.member = nil // nothing goes on with it
		return span{i, body + n + len("-----END -----") + len(label)}, true
	}
	return span{i, t.run(body, func(c byte) bool { return isAlnum(c) || strings.IndexByte("+/=\\\r\n\t ", c) >= 0 })}, true
}

// urlPassword finds the password of scheme://user:password@host; i is at the
// scheme's colon. The slashes may be escaped as JSON allows.
func (t *tokens) urlPassword(i int) (span, bool) {
	text, start := t.text, i+1
	switch rest := text[start:]; {
	case strings.HasPrefix(rest, "//"):
		start += 2
	case strings.HasPrefix(rest, `\/\/`):
		start += 4
	default:
		return span{}, false
	}
	if i == 0 || !isAlnum(text[i-1]) {
		return span{}, false
	}
	end := t.run(start, func(c byte) bool { return c > ' ' && strings.IndexByte(`/?#"'<>\`, c) < 0 })
	if start < end && t.cut(end) { // the colon and the @ may follow
		return span{start, end}, true
	}
	at := strings.LastIndexByte(text[start:end], '@')
	if at < 0 {
		return span{}, false
	}
	colon := strings.IndexByte(text[start:start+at], ':')
	if colon < 0 || colon+1 == at {
		return span{}, false
	}
	m := span{start + colon + 1, start + at}
	return m, text[m.start:m.end] != Marker
}

// atBoundary reports whether a word may start at i. The end of an escape, such as the n of \n or the 2F of %2F, is
// not part of a word.
func atBoundary(text string, i int) bool {
	if i == 0 || !isAlnum(text[i-1]) && text[i-1] != '_' {
		return true
	}
	return i >= 2 && text[i-2] == '\\' ||
		i >= 3 && text[i-3] == '%' && unhex(text[i-2]) >= 0 && unhex(text[i-1]) >= 0 ||
		i >= 6 && text[i-6] == '\\' && text[i-5] == 'u' && isHex4(text[i-4:i])
}

// run returns the first position from i on whose byte is not a member.
func run(text string, i int, member func(byte) bool) int {
	for i < len(text) && member(text[i]) {
		i++
	}
	return i
}

func isTokenByte(c byte) bool { return isAlnum(c) || c == '-' || c == '_' }

// isJWTByte reports whether a JSON Web Token may contain c.
func isJWTByte(c byte) bool { return isTokenByte(c) || c == '.' }

func isWordByte(c byte) bool { return isAlnum(c) || c == '_' }

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

func hasFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
