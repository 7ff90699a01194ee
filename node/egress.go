package node

import (
	"crypto/tls"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/egress"
)

func (n *Node) egressConfig() (egress.PoolConfig, error) { return Egress(n.config.Egress) }

// Egress is how tools' servers are reached by the settings. Each pool that is made of it
// has connections of its own. E3008 where a setting cannot be used.
func Egress(s config.Egress) (egress.PoolConfig, error) {
	c := egress.PoolConfig{ConnsPerHost: s.MaxConns, IdlePerHost: s.IdleConns, Idle: 4 * s.IdleConns, IdleTimeout: s.IdleTimeout,
		ConnectTimeout: s.ConnectTimeout, MaxHeaderBytes: s.MaxHeader}
	if s.TLSMin == "1.3" {
		c.MinTLS = tls.VersionTLS13
	}
	var err error
	if c.RootCAs, err = egress.LoadRoots(s.CAFiles); err != nil {
		return c, toolkeep.NewError(toolkeep.InvalidManifest, "egress.ca_files: %s", err)
	}
	if s.Proxy != "" {
		if c.Proxy, err = egress.NewProxy(egress.ProxyConfig{URL: s.Proxy, Bypass: s.ProxyBypass, TrustNames: s.ProxyNames == "trusted"}); err != nil {
			return c, toolkeep.NewError(toolkeep.InvalidManifest, "egress.proxy: %s", err)
		}
	}
	return c, nil
}
