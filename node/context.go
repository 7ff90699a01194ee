package node

import (
	"context"
	"net/url"
	"strconv"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/redact"
)

// buildContexts makes what agents add to tools, with the remote service if one is set.
func (n *Node) buildContexts(context.Context) (err error) {
	s := n.config.Context
	c := overlay.Config{Store: n.store, Sealer: n.sealer, URL: s.URL, Required: s.Required, Timeout: s.Timeout, Life: s.TTL,
		Clock: n.options.Clock, Log: n.logger("context")}
	if s.URL != "" {
		// The operator names the service, so it may stand on an inner address; nothing else
		// is reached with this client.
		c.Client = n.client("", destination(s.URL))
	}
	if s.Token != "" {
		c.Bearer = n.contextToken
	}
	n.contexts, err = overlay.New(c)
	return err
}

// destination is the host and port of a URL.
func destination(address string) []toolkeep.HostPort {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	port, _ := strconv.Atoi(u.Port()) // 0 is the scheme's, which any port covers
	return []toolkeep.HostPort{{Host: u.Hostname(), Port: port}}
}

// contextToken reads the token for the service at each request, so that a new one
// serves at once.
func (n *Node) contextToken(ctx context.Context) (string, error) {
	token, err := n.secrets.Resolve(ctx, System(), n.config.Context.Token)
	if err != nil {
		return "", err
	}
	n.redact.Hold(redact.AllTenants, token)() // known for a while after
	return token, nil
}
