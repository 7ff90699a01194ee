package sqltool

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// Config configures an Executor. The zero value works; it opens no SQLite file and no
// Unix socket.
type Config struct {
	// SQLiteRoots are the absolute folders below which SQLite files may be opened.
	// {tenant} stands for the caller's tenant.
	SQLiteRoots []string
	// SocketDirs are the absolute folders in which servers' Unix sockets may be opened,
	// with {tenant} as above.
	SocketDirs []string
	// PerPool bounds the connections per tenant, connection and credential; default 8.
	PerPool int
	// Total bounds all connections; default 64.
	Total int
	// Wait bounds a call's wait for a connection; default 5 s.
	Wait time.Duration
	// IdleFor is how long an idle connection is kept; default 60 s.
	IdleFor time.Duration
	// ConnectTimeout bounds connecting and login; default 10 s.
	ConnectTimeout time.Duration
	// Resolver resolves hosts; nil is net.DefaultResolver.
	Resolver *net.Resolver
	// RootCAs are the trusted authorities; nil means the system's.
	RootCAs *x509.CertPool
}

// Validate returns E3008 for an invalid folder. New does not check: an invalid folder
// opens nothing.
func (c *Config) Validate() error {
	for _, list := range []struct {
		setting string
		folders []string
	}{{"sql.sqlite_roots", c.SQLiteRoots}, {"sql.socket_dirs", c.SocketDirs}} {
		for _, f := range list.folders {
			why := ""
			switch {
			case !filepath.IsAbs(f):
				why = "it must be an absolute path"
			case strings.ContainsRune(f, 0):
				why = "it holds a NUL byte"
			case slices.Contains(strings.Split(f, "/"), ".."):
				why = `it has an element ".."`
			case strings.ContainsAny(strings.ReplaceAll(f, datadir.TenantMark, ""), "{}"):
				why = "braces may only stand in {tenant}, the caller's tenant"
			default:
				continue
			}
			return toolkeep.NewError(toolkeep.InvalidManifest, "%s: the folder %q cannot be used: %s", list.setting, f, why)
		}
	}
	return nil
}

// maxAge is how long a connection is used.
const maxAge = 30 * time.Minute

func (c *Config) fill() {
	def := func(v *int, to int) {
		if *v <= 0 {
			*v = to
		}
	}
	span := func(v *time.Duration, to time.Duration) {
		if *v <= 0 {
			*v = to
		}
	}
	def(&c.PerPool, 8)
	def(&c.Total, 64)
	span(&c.Wait, 5*time.Second)
	span(&c.IdleFor, time.Minute)
	span(&c.ConnectTimeout, 10*time.Second)
}

const (
	maxTries     = 4  // of a call that deadlocks
	maxStale     = 16 // unusable sessions that one try may take
	defaultHard  = 100 << 20
	stopTime     = 3 * time.Second // to send the cancel request and for the server to stop
	leastTimeout = 10 * time.Millisecond
)

// Executor is the executor of kind "sql". It is safe for concurrent use.
type Executor struct {
	config Config
	pools  *pools

	bindings bindings.Kept[binding]
}

var (
	_ toolkeep.Executor      = (*Executor)(nil)
	_ toolkeep.UpstreamNamer = (*Executor)(nil)
)

// UpstreamOf implements toolkeep.UpstreamNamer: the upstream of a tool is the database's host, socket or file.
func (e *Executor) UpstreamOf(_ *toolkeep.Principal, t *toolkeep.Tool) string {
	b, err := e.bindings.Of(t, parse)
	if err != nil {
		return ""
	}
	return b.conn.upstream()
}

// Reach implements toolkeep.Reacher: a tool uses its database.
func (e *Executor) Reach(t *toolkeep.Tool) (toolkeep.Reach, error) {
	b, err := e.bindings.Of(t, parse)
	if err != nil {
		return toolkeep.Reach{}, err
	}
	if c := &b.conn; c.host != "" {
		return toolkeep.Reach{Hosts: []toolkeep.HostPort{{Host: c.host, Port: c.port}}}, nil
	}
	return toolkeep.Reach{Socket: b.conn.socket != "", OtherFiles: b.conn.file != ""}, nil
}

// New returns an Executor.
func New(c Config) *Executor {
	c.fill()
	return &Executor{config: c, pools: newPools(c.PerPool, c.Total, c.Wait, c.IdleFor, maxAge)}
}

// Close closes the connections; those of running calls when they end. It may be called
// twice.
func (e *Executor) Close() { e.pools.close() }

// Kind is "sql".
func (e *Executor) Kind() string { return "sql" }

// Check returns every fault of the binding and of auth.
func (e *Executor) Check(m *toolkeep.Manifest) []toolkeep.Fault {
	b, faults := parse(m)
	if len(faults) > 0 {
		return faults
	}
	if len(b.apart) > 0 {
		return b.apart
	}
	if faults := b.checkFilesystem(m); len(faults) > 0 {
		return faults
	}
	if err := e.checkLocal(b, anyTenant); err != nil {
		at := bindings.At + "/connection/socket"
		if b.dialect == sqliteDB {
			at = bindings.At + "/connection/file"
		}
		return []toolkeep.Fault{{Pointer: at, Rule: "roots", Message: err.Message}}
	}
	return nil
}

// session is one connection to a database, used by one call at a time. begin, run and
// end ignore ctx if the server can be told to stop: stop does that from another
// goroutine, bounds how long they continue, and leaves the session unusable.
type session interface {
	// begin starts a transaction. No data of the call is sent before run.
	begin(ctx context.Context, b *binding, limit time.Duration) error
	// run executes one statement. It sets sent as soon as arguments are sent.
	run(ctx context.Context, r *round) error
	// end commits or rolls back, and clears the session's state.
	end(ctx context.Context, commit bool) error
	stop(ctx context.Context)
	usable() bool
	// traffic returns the bytes sent and received since the connection was made.
	traffic() (sent, received int64)
	close()
}

// round is one statement of a running call.
type round struct {
	binding *binding
	st      *statement
	args    []argument
	out     *sink
	last    bool // no other statement follows
	sent    *bool
}

// Execute runs the tool's statements in one transaction.
//
// Errors: E3310 an integer is wider than SQLite's; E3320 an argument cannot be bound;
// E3402 the database refused the login; E3505 forbidden destination, socket or file;
// E3601 no connection, or it broke; E3602 the database refused the statement, for the
// reason in details.sqlstate; E3603 the attempt's deadline; E3610 a reading tool tried
// to do something else, or the statement reaches beyond the call's transaction or file;
// E3620 deadlock or serialisation failure after the executor's own retries; E3710 the
// result is over MaxBytes; E3902 ctx was cancelled. NothingSent is set as long as no
// argument was sent.
func (e *Executor) Execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
	b, terr := e.bindings.Of(x.Tool, parse)
	if terr != nil {
		return nil, terr
	}
	if len(b.apart) > 0 {
		e := forbidden(b.apart[0].Message)
		e.NothingSent = true
		return nil, e
	}
	args, terr := b.arguments(x.Args)
	if terr != nil {
		return nil, terr
	}
	statements, terr := b.complete(x.Args)
	if terr != nil {
		return nil, terr
	}
	l, terr := b.login(x)
	if terr != nil {
		return nil, terr
	}
	c := &call{executor: e, x: x, binding: b, login: l, args: args, texts: statements}
	for try := 1; ; try++ {
		c.sent = false
		out, err := c.attempt(ctx)
		if err == nil {
			return out, nil
		}
		f := c.failure(ctx, err)
		f.NothingSent = !c.sent
		if f.Code != toolkeep.DBDeadlock || c.kept || try == maxTries || !pause(ctx, try) { // rows that were kept would be written twice
			if f.Code == toolkeep.DBDeadlock {
				f.With("tries", try)
			}
			return nil, f
		}
	}
}

// pause waits between tries; it returns false if ctx ended.
func pause(ctx context.Context, try int) bool {
	d := time.Duration(1+rand.Int64N(10<<try)) * time.Millisecond
	return toolkeep.Sleep(ctx, d)
}

// call is one Execute.
type call struct {
	executor *Executor
	x        *toolkeep.Execution
	binding  *binding
	login    *login
	args     [][]argument
	texts    []statement // of this call
	sent     bool
	kept     bool // the rollback left rows in tables without transactions
	renewed  bool // a dead session was replaced
	repairs  canon.Repairs
}

// login is a connection's credentials.
type login struct {
	user, password string
	cert           *tls.Certificate
	leased         bool // it ends with the call
	hash           [32]byte
}

// login builds the login from the call's credentials.
func (b *binding) login(x *toolkeep.Execution) (*login, *toolkeep.Error) {
	l := &login{user: b.conn.user}
	if b.dialect == sqliteDB {
		return l, nil
	}
	h := sha256.New()
	for _, c := range x.Credentials {
		switch c.Spec.Type {
		case "none":
			continue
		case "basic":
			user, password, ok := strings.Cut(c.Value, ":")
			if !ok || user == "" {
				return nil, badCredential("the secret of auth type basic is not of the form user:password")
			}
			l.user, l.password = user, password
		case "mtls":
			cert, err := tls.X509KeyPair([]byte(c.Value), []byte(c.Value))
			if err != nil {
				return nil, badCredential("the secret of auth type mtls is not a certificate with its key in PEM form")
			}
			l.cert = &cert
		default:
			l.password = c.Value
		}
		l.leased = l.leased || c.Leased
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(c.Value)))
		h.Write([]byte(c.Spec.Type))
		h.Write(n[:])
		h.Write([]byte(c.Value))
	}
	if strings.IndexByte(l.user+l.password, 0) >= 0 {
		return nil, badCredential("the secret holds a NUL character, which no database accepts")
	}
	copy(l.hash[:], h.Sum(nil))
	return l, nil
}

func badCredential(why string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.SecretAccessDenied, "%s", why)
	e.NothingSent = true
	return e
}

// attempt runs the call once. It retries with another session if an idle one turns out
// to be unusable: dead, if the tool only reads, because reading twice is harmless; or
// with a prepared statement older than a change of its tables, which the server refuses
// entirely.
func (c *call) attempt(ctx context.Context) (*toolkeep.Output, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.executor.checkLocal(c.binding, c.tenant()); err != nil {
		return nil, err
	}
	out, stale, err := c.once(ctx)
	for tries := 0; stale && tries < maxStale; tries++ {
		out, stale, err = c.once(ctx)
	}
	return out, err
}

func (c *call) once(ctx context.Context) (_ *toolkeep.Output, stale bool, _ error) {
	m, err := c.begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer c.executor.pools.give(m)
	sent, received := m.traffic()
	guard := watch(ctx, m.session)
	value, err := c.statements(ctx, m)
	switch {
	case err == nil && c.binding.write:
		err = m.end(ctx, true)
	case m.usable():
		// A session that cannot roll back is unusable and closed.
		c.kept = errors.Is(m.end(ctx, false), errKept)
	}
	guard.done()
	if err != nil {
		dead := !c.binding.write && !c.renewed && classify(err).Code == toolkeep.DBConnectionFailed
		stale := m.used && !m.usable() && !c.kept && ctx.Err() == nil && (dead || outdated(err))
		c.renewed = c.renewed || dead
		return nil, stale, err
	}
	s, r := m.traffic()
	return &toolkeep.Output{Value: value, HasValue: true, BytesSent: s - sent, BytesRecv: r - received, Warnings: c.repairs.Warnings()}, false, nil
}

func (c *call) tenant() string {
	if c.x.Principal == nil {
		return ""
	}
	return c.x.Principal.Tenant
}

// begin takes a session and starts the transaction. If an idle session has died, it
// takes another, because nothing was sent.
func (c *call) begin(ctx context.Context) (*member, error) {
	key := poolKey{tenant: c.tenant(), share: c.binding.share, secret: c.login.hash}
	for {
		m, err := c.executor.pools.take(ctx, key, c.dial)
		if err != nil {
			return nil, err
		}
		m.leased = c.login.leased
		guard := watch(ctx, m.session)
		err = m.begin(ctx, c.binding, c.limit(ctx))
		guard.done()
		if err == nil {
			return m, nil
		}
		again := m.used && !m.usable() && ctx.Err() == nil
		c.executor.pools.give(m)
		if !again {
			return nil, err
		}
	}
}

func (c *call) dial(ctx context.Context) (session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.executor.config.ConnectTimeout)
	defer cancel()
	return dialRecovering(func() (session, error) {
		switch c.binding.dialect {
		case postgres:
			return dialPostgres(ctx, c.executor, c.binding, c.login)
		case mysqlDB:
			return dialMySQL(ctx, c.executor, c.binding, c.login)
		}
		return dialSQLite(ctx, c.executor, c.binding, c.tenant())
	})
}

// limit is the server's time limit, because the server does not see ctx.
func (c *call) limit(ctx context.Context) time.Duration {
	d := c.x.Tool.Manifest.AttemptTimeout()
	if at, ok := toolkeep.Deadline(ctx); ok {
		d = min(d, time.Until(at))
	}
	return max(d, leastTimeout)
}

func (c *call) hard() int64 {
	if c.x.MaxBytes > 0 {
		return c.x.MaxBytes
	}
	return defaultHard
}

// statements runs them in order and builds the call's result.
func (c *call) statements(ctx context.Context, m *member) (any, error) {
	b := c.binding
	var total int64
	c.repairs = canon.Repairs{} // of an attempt that was stale
	results := make([]any, 0, len(b.statements))
	for i := range b.statements {
		out := &sink{maxRows: b.rows, maxBytes: b.bytes, hard: c.hard(), total: &total}
		if !b.write {
			out.grow = c.x.Arrived
		}
		if n, ok := shown(c.args[i]); ok && n < b.rows {
			out.maxRows, out.paged = n, true
		}
		if !b.all {
			total = 0
		}
		r := &round{binding: b, st: &c.texts[i], args: c.args[i], out: out, last: i == len(b.statements)-1, sent: &c.sent}
		if err := m.run(ctx, r); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err // do not commit a cancelled call
		}
		if b.all || r.last {
			c.repairs = c.repairs.And(out.repairs)
			results = append(results, out.value())
		}
	}
	if b.all {
		return map[string]any{"results": results}, nil
	}
	return results[0], nil
}

// watcher stops a session when its call's context ends.
type watcher struct {
	off      func() bool
	finished chan struct{}
}

func watch(ctx context.Context, s session) watcher {
	w := watcher{finished: make(chan struct{})}
	w.off = context.AfterFunc(ctx, func() {
		defer close(w.finished)
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		s.stop(own)
	})
	return w
}

// done ends the watch. If stopping has begun, it waits for that to finish: a late
// cancel must not hit the next call.
func (w watcher) done() {
	if !w.off() {
		<-w.finished
	}
}

// ended returns the error for why ctx ended.
func ended(ctx context.Context) *toolkeep.Error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return toolkeep.NewError(toolkeep.DBTimeout, "the database did not answer within the attempt's time limit; the statement was cancelled")
	}
	return toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled; the database was asked to stop")
}
