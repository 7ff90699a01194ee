package node

import (
	"regexp"
	"strings"
)

var (
	secretName = regexp.MustCompile(`(?i)key|token|secret|passw|passphrase|(^|_)pass(_|$)|(^|_)pat(_|$)|pwd|auth|cred|cookie|session|signature|private|bearer|dsn|database_url|conn`)
	opaqueWord = regexp.MustCompile(`[A-Za-z0-9+_=-]{20,}`)
)

// looksSecret tells whether a literal value of a server's environment or headers is
// to be taken out of results and logs, beside being sealed and hidden as all are. Its
// name says so, or it is what keys look like: a long word of letters and digits. Words
// such as production or debug stay, or results that hold them would be blacked out.
func looksSecret(name, value string) bool {
	if secretName.MatchString(name) || strings.Contains(value, "://") && strings.Contains(value, "@") {
		return true
	}
	word := opaqueWord.FindString(value)
	return strings.ContainsAny(word, "0123456789") && strings.ContainsAny(strings.ToLower(word), "abcdefghijklmnopqrstuvwxyz")
}
