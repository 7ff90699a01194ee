package node

import (
	"fmt"

	"github.com/toolkeep/toolkeep/executor/sqltool"
)

// buildSQL makes the executor of databases with the folders that the operator opens.
func (n *Node) buildSQL() error {
	e, err := n.egressConfig()
	if err != nil {
		return fmt.Errorf("the connections to databases cannot be set up: %w", err)
	}
	s := n.config.SQL
	n.sql = sqltool.New(sqltool.Config{SQLiteRoots: s.SQLiteRoots, SocketDirs: s.SocketDirs, Total: s.MaxConns, PerPool: s.PoolConns,
		Wait: s.Wait, IdleFor: s.IdleTimeout, ConnectTimeout: e.ConnectTimeout, Resolver: e.Resolver, RootCAs: e.RootCAs})
	return nil
}
