package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/toolkeep/toolkeep"
)

// Config configures a Client. URL is required.
type Config struct {
	// URL is redis://host:6379/0 on this machine, rediss://host:6379/0 elsewhere, or
	// unix:///path/to/socket?db=0. It may contain a user (user@host) but no password.
	URL string
	// Password is called for each new connection; nil sends none.
	Password func(ctx context.Context) (string, error)
	// CAFile holds the CA certificates for the server, PEM; "" uses the system's.
	// ServerName is the name in the server's certificate, if it differs from the URL.
	CAFile, ServerName string
	// CertFile and KeyFile are the client certificate, PEM; "" is none.
	CertFile, KeyFile string
	// Prefix starts every key; default "toolkeep:".
	Prefix string
	// Conns is the maximum number of connections; default 16.
	Conns int
	// Timeout bounds connecting, and reads and writes if the caller's context does not
	// end earlier; default 1 s.
	Timeout time.Duration
	Name    string // name of the connections in CLIENT LIST; "" is none
}

// Client is a connection pool to one server. It connects on first use and reconnects
// after the server was down.
type Client struct {
	pool    *goredis.Client
	prefix  string
	timeout time.Duration

	mu            sync.Mutex // guards subscriptions
	subscriptions []*goredis.PubSub
	listening     sync.WaitGroup
}

// New returns a Client without connecting. E3008 if the configuration is not usable.
func New(c Config) (*Client, error) {
	silence()
	o, err := c.options()
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "Redis cannot be used: %s", err.Error()).Because(err)
	}
	prefix := c.Prefix
	if prefix == "" {
		prefix = "toolkeep:"
	}
	return &Client{pool: goredis.NewClient(o), prefix: prefix, timeout: o.DialTimeout}, nil
}

// Check returns what New and Elsewhere would refuse. It asks the server only about the
// caches.
func Check(ctx context.Context, c Config, caches ...string) error {
	client, err := New(c)
	if err != nil {
		return err
	}
	return errors.Join(client.Elsewhere(ctx, caches...), client.Close())
}

// Pool returns the connection pool, for other uses of this package.
func (c *Client) Pool() goredis.UniversalClient { return c.pool }

// Health checks that the server responds and has the keys of the caches.
func (c *Client) Health(ctx context.Context, caches ...string) error {
	if err := c.pool.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis does not answer: %w", err)
	}
	return c.Elsewhere(ctx, caches...)
}

// Elsewhere returns E3008 if the server is a cluster node and the keys of one of the caches are
// on another node; nil if they are on this one or if the server does not say within
// Config.Timeout.
func (c *Client) Elsewhere(ctx context.Context, caches ...string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for _, cache := range caches {
		err := c.pool.Exists(ctx, c.names(cache)).Err()
		if goredis.HasErrorPrefix(err, "MOVED ") || goredis.HasErrorPrefix(err, "ASK ") {
			return toolkeep.NewError(toolkeep.InvalidManifest, "redis.url names a node of a Redis cluster that has the keys on another node, and a cluster's redirections are not followed; name a single server, or a proxy that answers for the whole cluster").Because(err)
		}
	}
	return nil
}

// names returns the key of the list of a cache's names. The braces put all keys of a
// cache into one cluster slot.
func (c *Client) names(cache string) string { return c.prefix + "{" + cache + "}:names" }

// Close ends the subscriptions and closes the connections. A nil Client has none.
func (c *Client) Close() error {
	if c == nil {
		return nil
	}
	c.deafen()
	return c.pool.Close()
}

func (c *Config) options() (*goredis.Options, error) {
	o := &goredis.Options{
		ClientName: c.Name, PoolSize: c.Conns, DialTimeout: c.Timeout,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout, ContextTimeoutEnabled: true,
		// The caller decides about retries; a cache should not retry.
		MaxRetries: -1, DialerRetries: 1, PipelinePoolSize: -1,
		ConnMaxIdleTime: 5 * time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if o.PoolSize <= 0 {
		o.PoolSize = 16
	}
	if c.Timeout <= 0 {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Second, time.Second, time.Second, time.Second
	}
	user, err := c.address(o)
	if err != nil {
		return nil, err
	}
	o.Username = user
	if c.Password != nil {
		o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
			word, err := c.Password(ctx)
			return user, word, err
		}
	}
	return o, nil
}

// address parses the URL. Errors never quote it: people put passwords there.
func (c *Config) address(o *goredis.Options) (user string, err error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", errors.New("its URL cannot be read; write rediss://host:6379/0 or unix:///path/to/socket")
	}
	if _, has := u.User.Password(); has {
		return "", errors.New("its URL holds a password; put a secret reference into redis.password instead")
	}
	query := u.Query()
	db := query.Get("db")
	query.Del("db")
	if len(query) > 0 || u.Fragment != "" {
		return "", errors.New("its URL has parameters beside db; the other settings below redis are for those")
	}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || u.Path == "" {
			return "", errors.New("its URL names no socket; write unix:///path/to/socket")
		}
		o.Network, o.Addr = "unix", u.Path
	case "redis", "rediss":
		if u.Hostname() == "" {
			return "", errors.New("its URL names no host; write " + u.Scheme + "://host:6379/0")
		}
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		o.Network, o.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
		if path := strings.Trim(u.Path, "/"); path != "" {
			db = path
		}
	default:
		return "", errors.New("its URL must begin with redis://, rediss:// or unix://")
	}
	if db != "" {
		if o.DB, err = strconv.Atoi(db); err != nil || o.DB < 0 {
			return "", errors.New("the database in its URL is not a number")
		}
	}
	if u.Scheme == "rediss" {
		o.TLSConfig, err = c.tls(u.Hostname())
		return u.User.Username(), err
	}
	if c.CAFile+c.ServerName+c.CertFile+c.KeyFile != "" {
		return "", errors.New("TLS is configured and its URL is not rediss://")
	}
	if u.Scheme == "redis" && !here(u.Hostname()) {
		return "", errors.New("its URL must be rediss:// where the server is not on this machine")
	}
	return u.User.Username(), nil
}

// here reports whether a host is this machine.
func here(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (c *Config) tls(host string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if t.ServerName == "" {
		t.ServerName = host
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("redis.ca_file: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis.ca_file: %s holds no PEM certificate", c.CAFile)
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, errors.New("redis.client_cert and redis.client_key go together")
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("redis.client_cert, redis.client_key: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// silence keeps the library from writing to the process's standard error: each call
// returns its errors. The library has one logger per process.
var silence = sync.OnceFunc(func() { goredis.SetLogger(quiet{}) })

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
