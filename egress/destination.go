package egress

import (
	"net/url"
	"strconv"

	"github.com/toolkeep/toolkeep"
)

// Destination is the host and port of a URL, for an AllowList; none where it is no URL.
func Destination(address string) []toolkeep.HostPort {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	port, _ := strconv.Atoi(u.Port()) // 0 is the scheme's, which any port covers
	return []toolkeep.HostPort{{Host: u.Hostname(), Port: port}}
}
