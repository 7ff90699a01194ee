package egress

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter is the longest wait that RetryAfter returns.
const maxRetryAfter = time.Hour

// RetryAfter parses the value of a Retry-After header: seconds or a date (RFC 9110, section 10.2.3). It returns at most
// one hour, and 0 for a value that is missing, invalid or past.
func RetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Duration(max(0, min(n, int64(maxRetryAfter/time.Second)))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(0, min(at.Sub(now), maxRetryAfter))
}

// SameOrigin reports whether two URLs have the same scheme, host and port; a missing port is the scheme's own.
func SameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && Port(a) == Port(b)
}

// Port returns the port of an http or https URL, 443 or 80 if it has none.
func Port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// HasDotSegments reports whether an escaped path has a "." or ".." segment, or an invalid escape.
func HasDotSegments(path string) bool {
	for seg := range strings.SplitSeq(path, "/") {
		if plain, err := url.PathUnescape(seg); err != nil || plain == "." || plain == ".." {
			return true
		}
	}
	return false
}

// IsToken reports whether s is a token (RFC 9110, section 5.6.2), as names of headers and cookies are.
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// MediaType returns a Content-Type in lower case, without its parameters.
func MediaType(contentType string) string {
	s, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(s))
}

// IsJSON reports whether a media type, as MediaType returns it, is that of JSON.
func IsJSON(mediaType string) bool {
	return mediaType == "application/json" || mediaType == "text/json" ||
		strings.HasPrefix(mediaType, "application/") && strings.HasSuffix(mediaType, "+json")
}
