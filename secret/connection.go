package secret

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"
)

// secretPair is a member of a connection string, as libpq, ODBC, ADO.NET and Azure write it:
// password=x, Pwd={x}, AccountKey=x;
var secretPair = regexp.MustCompile(`(?i)(?:^|[;\s&?,])(?:password|passwd|pwd|secret|client[_ ]?secret|(?:access|auth)?[_ ]?token|(?:account|access|api|shared[_ ]?access)[_ ]?key|signature|sig)\s*=\s*(?:'([^']*)'|"([^"]*)"|\{([^}]*)\}|([^;\s&]+))`)

// appendConnection appends the secret parts of a connection string or of a URL: the password, or a user
// without one, as written and decoded; what pairs such as password=x say; and the password behind
// "Basic".
func appendConnection(all []string, text string) []string {
	if at := strings.Index(text, "://"); at > 0 && len(text) <= maxConnection {
		rest := text[at+len("://"):]
		if end := strings.IndexAny(rest, "/?# "); end >= 0 {
			rest = rest[:end]
		}
		if end := strings.LastIndexByte(rest, '@'); end > 0 {
			user, password, two := strings.Cut(rest[:end], ":")
			if !two {
				password = user
			}
			all = append(all, password)
			if plain, err := url.PathUnescape(password); err == nil && plain != password {
				all = append(all, plain)
			}
		}
	}
	if len(text) <= maxConnection && strings.IndexByte(text, '=') >= 0 {
		for _, m := range secretPair.FindAllStringSubmatch(text, 50) {
			for _, v := range m[1:] {
				if v == "" {
					continue
				}
				all = append(all, v)
				if plain, err := url.QueryUnescape(v); err == nil && plain != v {
					all = append(all, plain)
				}
			}
		}
	}
	if scheme, word, two := strings.Cut(text, " "); two && strings.EqualFold(scheme, "Basic") {
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(word)); err == nil {
			if _, password, ok := strings.Cut(string(raw), ":"); ok {
				all = append(all, password)
			}
		}
	}
	return all
}

// maxConnection is how long a connection string may be, in bytes, to be taken apart.
const maxConnection = 8 << 10
