package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/executor/builtin"
	"github.com/toolkeep/toolkeep/executor/filetool"
	"github.com/toolkeep/toolkeep/executor/grpctool"
	"github.com/toolkeep/toolkeep/executor/httptool"
	"github.com/toolkeep/toolkeep/executor/mcptool"
	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/node/settings"
)

// executors are all that carry out tools, by kind.
func (n *Node) executors() map[string]toolkeep.Executor {
	all := map[string]toolkeep.Executor{}
	for _, ex := range slices.Concat([]toolkeep.Executor{
		n.http,
		n.grpc,
		n.sql,
		n.files,
		mcptool.New(n.upstream),
		builtin.New(builtin.Config{Clock: n.options.Clock, Dir: filepath.Join(n.config.Data, datadir.Notes)}),
	}, n.options.Executors) {
		all[ex.Kind()] = ex
	}
	return all
}

// buildHTTP makes the executor of HTTP endpoints.
func (n *Node) buildHTTP(context.Context) error {
	e, err := n.config.Egress.Pool()
	if err == nil {
		n.http = httptool.New(httptool.Config{Clock: n.options.Clock, Egress: e})
	}
	return err
}

// buildGRPC makes the executor of gRPC methods.
func (n *Node) buildGRPC(context.Context) error {
	e, err := n.config.Egress.Pool()
	if err != nil {
		return fmt.Errorf("the connections to gRPC servers cannot be set up: %w", err)
	}
	n.grpc = grpctool.New(grpctool.Config{Egress: e})
	return nil
}

// buildFiles makes the executor of files with the folders that the operator opens.
func (n *Node) buildFiles(context.Context) error {
	base, c, err := settings.Files(n.config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return fmt.Errorf("the folder of files cannot be made: %w", err)
	}
	n.files, err = filetool.New(c)
	return err
}

// buildSQL makes the executor of databases with the folders that the operator opens.
func (n *Node) buildSQL(context.Context) error {
	e, err := n.config.Egress.Pool()
	if err != nil {
		return fmt.Errorf("the connections to databases cannot be set up: %w", err)
	}
	c := settings.SQL(n.config)
	if err := c.Validate(); err != nil {
		return err
	}
	c.ConnectTimeout, c.Resolver, c.RootCAs = e.ConnectTimeout, e.Resolver, e.RootCAs
	n.sql = sqltool.New(c)
	return nil
}
