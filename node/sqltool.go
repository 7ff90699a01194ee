package node

import (
	"context"
	"fmt"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/executor/sqltool"
)

// buildSQL makes the executor of databases with the folders that the operator opens.
func (n *Node) buildSQL(context.Context) error {
	e, err := n.egressConfig()
	if err != nil {
		return fmt.Errorf("the connections to databases cannot be set up: %w", err)
	}
	c := sqlConfig(n.config)
	if err := c.Validate(); err != nil {
		return err
	}
	c.ConnectTimeout, c.Resolver, c.RootCAs = e.ConnectTimeout, e.Resolver, e.RootCAs
	n.sql = sqltool.New(c)
	return nil
}

// sqlConfig is what the settings under sql say.
func sqlConfig(c *config.Config) sqltool.Config {
	s := c.SQL
	return sqltool.Config{SQLiteRoots: s.SQLiteRoots, SocketDirs: s.SocketDirs, Total: s.MaxConns, PerPool: s.PoolConns,
		Wait: s.Wait, IdleFor: s.IdleTimeout}
}
