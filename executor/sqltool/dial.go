package sqltool

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/egress"
)

// wire is the connection to a server. It bounds what one call may read, whatever the
// driver would buffer.
type wire struct {
	net.Conn
	budget atomic.Int64
	spent  atomic.Bool

	sent, received atomic.Int64
}

func (w *wire) traffic() (sent, received int64) { return w.sent.Load(), w.received.Load() }

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.sent.Add(int64(n))
	return n, err
}

// overhead is the allowance for reading more than a result's values: names, headers,
// rows over the cap.
const overhead = 4 << 20

func (w *wire) allow(bytes int64) { w.budget.Store(bytes + overhead) }

var errBudget = errors.New("the answer is over the limit of a call")

func (w *wire) Read(p []byte) (int, error) {
	if w.budget.Load() <= 0 {
		w.spent.Store(true)
		return 0, errBudget
	}
	n, err := w.Conn.Read(p)
	w.budget.Add(-int64(n))
	w.received.Add(int64(n))
	return n, err
}

// dial opens the connection's socket: TCP through the guard, or a Unix socket in a
// folder that the operator opens.
func (e *Executor) dial(ctx context.Context, b *binding) (*wire, error) {
	var conn net.Conn
	var err error
	if b.conn.socket != "" {
		var d net.Dialer // checkLocal was called before
		conn, err = d.DialContext(ctx, "unix", b.socketFile())
	} else {
		g := egress.Guard{Allow: b.allow, Resolver: e.config.Resolver, ConnectTimeout: e.config.ConnectTimeout}
		conn, err = g.DialContext(ctx, "tcp", b.conn.address())
	}
	if out := egress.OutOfDescriptors(err); out != nil {
		return nil, out
	}
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn}
	w.allow(1 << 20) // enough for any login
	return w, nil
}

// again opens another connection to the same server address as w, for a cancel request:
// a name may have several addresses, each a different server.
func (e *Executor) again(ctx context.Context, b *binding, w *wire) (*wire, error) {
	to := w.RemoteAddr()
	d := net.Dialer{Timeout: e.config.ConnectTimeout}
	network, address := "unix", b.socketFile()
	if b.conn.socket == "" {
		network, address = "tcp", to.String()
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		g := egress.Guard{Allow: b.allow}
		if err := g.Check(b.conn.host, ap); err != nil {
			return nil, err
		}
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	other := &wire{Conn: conn}
	other.allow(1 << 20)
	return other, nil
}

// socketFile returns the socket's path: PostgreSQL configures its directory.
func (b *binding) socketFile() string {
	if b.dialect == postgres {
		return filepath.Join(b.conn.socket, ".s.PGSQL."+strconv.Itoa(b.conn.port))
	}
	return b.conn.socket
}

// anyTenant checks whether a file or socket is open to some tenant.
const anyTenant = "\x00any"

// checkLocal reports whether the operator opens the binding's file or socket to the tenant.
// The guard checks TCP.
func (e *Executor) checkLocal(b *binding, tenant string) *toolkeep.Error {
	switch {
	case b.dialect == sqliteDB:
		_, err := e.sqliteFile(b.conn.file, tenant)
		return err
	case b.conn.socket != "":
		if _, ok := below(e.config.SocketDirs, b.socketFile(), tenant); !ok {
			return shut("the Unix socket of the tool's database is in no folder of the server's setting sql.socket_dirs")
		}
	}
	return nil
}

func shut(why string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.DestinationForbidden, "%s", why)
	e.NothingSent = true
	return e
}

// below resolves all symbolic links of path and reports whether the result is below one
// of the folders.
func below(folders []string, path, tenant string) (real string, ok bool) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", false
	}
	real = filepath.Join(dir, filepath.Base(path))
	if r, err := filepath.EvalSymlinks(real); err == nil {
		real = r
	}
	for _, f := range folders {
		if before, _, own := strings.Cut(f, datadir.TenantMark); own && tenant == anyTenant {
			f = filepath.Dir(before + "x")
		} else if f, ok = datadir.ForTenant(f, tenant); !ok || own && strings.Contains(tenant, `\`) {
			continue // not a valid folder name
		}
		root, err := filepath.EvalSymlinks(f)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(root, real); err == nil && rel != "." && filepath.IsLocal(rel) {
			return real, true
		}
	}
	return "", false
}

// sqliteFile returns the real path of a file that may be opened.
func (e *Executor) sqliteFile(file, tenant string) (string, *toolkeep.Error) {
	real, ok := below(e.config.SQLiteRoots, file, tenant)
	if !ok {
		return "", shut("the tool's database file is in no folder of the server's setting sql.sqlite_roots, or it is not there")
	}
	return real, nil
}
