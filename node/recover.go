package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/datadir"
)

// RecoverKey makes an admin key in the store of a stopped server and writes its text to
// admin.key in the data directory, in place of what is there. It returns the key's id and
// the file. A data directory in use or without a database is an error, and so is an
// admin.key that still works (E3301).
func RecoverKey(ctx context.Context, c *config.Config, o Options) (id, file string, err error) {
	if c.Store.DSN == "" {
		if _, err := os.Stat(filepath.Join(c.Data, datadir.Database)); err != nil {
			return "", "", fmt.Errorf("there is no store to make a key in: %w; name the server's data directory with --data (the first start of a server makes its admin key)", err)
		}
	}
	n := newNode(c, o)
	defer n.running.stop()
	if err := n.running.start(ctx, []part{
		{"data directory", n.claim, func() { n.unlock() }},
		{"log", n.startLog, func() { n.log.Stop() }},
		{"name", n.buildMembers, nil},
		{"store", n.openStore, n.closeStore},
		{"access", func(context.Context) error {
			n.access, err = access.New(access.Config{Load: n.store.Keys, Store: n.store, Clock: n.options.Clock, Log: n.logger("permission_manager")})
			return err
		}, func() { n.access.Stop() }},
		{"keys", func(ctx context.Context) error { return n.access.Start(ctx) }, nil},
	}); err != nil {
		return "", "", err
	}
	id, err = n.keyFile().Recover(ctx, n.access)
	return id, n.keyFile().Path, err
}
