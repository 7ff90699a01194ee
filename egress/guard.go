package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Guard dials for one tool. The zero value allows only public addresses. It is safe for
// concurrent use as long as its fields do not change.
type Guard struct {
	// Allow lists the forbidden destinations that the tool may reach nevertheless: its
	// manifest's permissions.network. Hosts are compared without regard to case and a
	// trailing dot; port 0 is any port.
	Allow []toolkeep.HostPort
	// Resolver resolves names; nil is net.DefaultResolver. Every address it returns is
	// checked.
	Resolver *net.Resolver
	// ConnectTimeout bounds resolving and connecting; 0 is 10 s.
	ConnectTimeout time.Duration
}

// DialContext connects to addr (host:port) over TCP. Each address of the host is
// checked just before it is dialled.
//
// Outcomes: a *Conn; E3505 with NothingSent set if an address was forbidden and no
// other could be reached; E3811 if this process has no file descriptors left; otherwise net's error.
func (g *Guard) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, destinationForbidden("the network " + strconv.Quote(network) + " is not TCP")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	c := checker{guard: g, host: host}
	d := net.Dialer{
		Timeout:        g.connectTimeout(),
		Resolver:       g.Resolver,
		ControlContext: c.control,
	}
	conn, err := d.DialContext(ctx, network, net.JoinHostPort(host, port))
	if err != nil {
		if refusal := c.refusal.Load(); refusal != nil && ctx.Err() == nil {
			return nil, refusal
		}
		if out := OutOfDescriptors(err); out != nil {
			return nil, out
		}
		return nil, err
	}
	return &Conn{Conn: conn}, nil
}

func (g *Guard) connectTimeout() time.Duration {
	if g.ConnectTimeout == 0 {
		return 10 * time.Second
	}
	return g.ConnectTimeout
}

// Check returns nil if the guard allows a connection to addr, requested under the name
// host, and E3505 otherwise.
func (g *Guard) Check(host string, addr netip.AddrPort) error {
	name, inside := forbidden(addr.Addr())
	if name == "" {
		return nil
	}
	listed := false
	for _, a := range g.Allow {
		listed = listed || sameHost(a.Host, host)
		if a.Port != 0 && a.Port != int(addr.Port()) {
			continue
		}
		if ip, err := netip.ParseAddr(a.Host); err == nil {
			if ip.Unmap() == addr.Addr().WithZone("").Unmap() {
				return nil
			}
			continue
		}
		if inside && sameHost(a.Host, host) {
			return nil
		}
	}
	// Callers read this. It names the address where it is what they, the manifest or the upstream wrote, or where the
	// manifest lists the host. What any other name resolved to stays in the log: a redirect or a link of an upstream
	// can name hosts that the agent chose, and would tell it the network's inner names one by one.
	ip := addr.Addr().WithZone("").Unmap().String()
	server, host := "the tool's server ", strings.TrimSuffix(host, ".")
	_, err := netip.ParseAddr(host)
	literal := err == nil
	has, who := "has an address", `"its IP address"`
	if literal || listed {
		has, who = "has the address "+ip, strconv.Quote(ip)
	}
	if literal {
		server, has = server+net.JoinHostPort(ip, strconv.Itoa(int(addr.Port()))), "is"
	} else {
		host = host[:min(len(host), maxHostName)]
		server += host + ":" + strconv.Itoa(int(addr.Port()))
		if inside {
			who = strconv.Quote(host)
		}
	}
	allow := fmt.Sprintf(`add {"host": %s, "port": %d} to permissions.network in the tool's manifest`, who, addr.Port())
	hint := "if it is meant to be reached, " + allow
	if !inside {
		hint = "it can only be opened by its IP address: " + allow
	}
	return destinationForbidden(server+" "+has+" in a forbidden range ("+name+"); "+hint).
		With("range", name).Because(fmt.Errorf("%q is %s", host, addr))
}

// maxHostName is the longest DNS name.
const maxHostName = 253

// checker checks the addresses of one dial.
type checker struct {
	guard   *Guard
	host    string
	refusal atomic.Pointer[toolkeep.Error] // Dialer tries IPv4 and IPv6 concurrently
}

// control runs after the socket was created and before it connects.
func (c *checker) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		err = destinationForbidden("the address to connect to cannot be read").Because(err)
	} else {
		err = c.guard.Check(c.host, ap)
	}
	var refusal *toolkeep.Error
	if errors.As(err, &refusal) {
		c.refusal.Store(refusal)
	}
	return err
}

func destinationForbidden(why string) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.DestinationForbidden, "%s", why)
	e.NothingSent = true
	return e
}

func sameHost(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// Conn is a connection that counts the bytes written to it.
type Conn struct {
	net.Conn
	written atomic.Int64
}

// Write counts before it writes: an unchanged count proves that nothing of a later
// request was sent.
func (c *Conn) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p)))
	return c.Conn.Write(p)
}

// Written returns the bytes passed to the connection, or to the one under its TLS. ok
// is false if conn was not made by a Guard.
func Written(conn net.Conn) (n int64, ok bool) {
	for conn != nil {
		switch c := conn.(type) {
		case *Conn:
			return c.written.Load(), true
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return 0, false
		}
	}
	return 0, false
}
