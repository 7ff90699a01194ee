package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/executor/builtin"
	"github.com/toolkeep/toolkeep/executor/filetool"
	"github.com/toolkeep/toolkeep/executor/grpctool"
	"github.com/toolkeep/toolkeep/executor/httptool"
	"github.com/toolkeep/toolkeep/executor/mcptool"
	"github.com/toolkeep/toolkeep/executor/sqltool"
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
	base, c, err := fileConfig(n.config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return fmt.Errorf("the folder of files cannot be made: %w", err)
	}
	n.files, err = filetool.New(c)
	return err
}

// fileConfig reads files.roots; base is where relative ones lie. E3008 where one
// cannot be used.
func fileConfig(c *config.Config) (base string, fc filetool.Config, err error) {
	base, err = filepath.Abs(filepath.Join(c.Data, datadir.Files))
	if err != nil {
		return "", fc, fmt.Errorf("the data directory has no absolute path: %w", err)
	}
	fc.Home = filepath.Join(base, "{tenant}")
	if roots := c.Files.Roots; !slices.Equal(roots, []string{"none"}) {
		for _, text := range roots {
			r := filetool.ParseRoot(text)
			if !filepath.IsAbs(r.Path) && r.Path != "" {
				r.Path = base + "/" + r.Path // not cleaned, so that ".." is seen
			}
			if holdsProc(r.Path) {
				return "", fc, toolkeep.NewError(toolkeep.InvalidManifest,
					"files.roots: the folder %q cannot be used: it holds /proc or lies in it, where files show the server's environment and memory; name the folders that tools need", r.Path)
			}
			fc.Roots = append(fc.Roots, r)
		}
	}
	if err := fc.Validate(); err != nil {
		return "", fc, toolkeep.NewError(toolkeep.InvalidManifest, "files.roots: %s", toolkeep.AsError(err).Message)
	}
	return base, fc, nil
}

// holdsProc reports whether a folder is in the kernel's file system of processes, under
// whatever name, or contains it.
func holdsProc(path string) bool {
	path, _, _ = strings.Cut(path, "/{tenant}")
	real := filepath.Clean("/" + path)
	if found, err := filepath.EvalSymlinks(real); err == nil {
		real = found
	}
	var at syscall.Statfs_t
	const procMagic = 0x9fa0 // PROC_SUPER_MAGIC of Linux
	return real == "/" || real == "/proc" || strings.HasPrefix(real, "/proc/") || syscall.Statfs(real, &at) == nil && int64(at.Type) == procMagic
}

// buildSQL makes the executor of databases with the folders that the operator opens.
func (n *Node) buildSQL(context.Context) error {
	e, err := n.config.Egress.Pool()
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
