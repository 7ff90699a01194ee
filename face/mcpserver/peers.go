package mcpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/reload"
)

// peerKind is the kind of the documents that hold the addresses of a store's nodes.
const peerKind = "node"

const (
	peerBeat = 10 * time.Minute // how often a node renews its entry
	peerGone = time.Hour        // a node silent for this long is removed
)

// PeersConfig is what Peers needs.
type PeersConfig struct {
	Store interface {
		toolkeep.Applier
		toolkeep.Watcher
		Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
	}
	Node string // name of this node
	// Members are the nodes that live; nil: that is not known. *membership.Members is one.
	Members interface {
		Names() (names []string, age time.Duration)
	}
	Sessions  int              // MCP sessions of a node, and so requests at once to one node; default 10,000
	Limits    gate.Limits      // of all faces
	Cert, Key string           // files of this node's TLS certificate; "" without TLS
	Clock     func() time.Time // default time.Now
	Log       *slog.Logger

	limits handoverLimits
}

// Peers are the nodes that share one store. They forward requests that belong to one node: those of
// an MCP session, or of a call that waits for an answer. A forwarded request keeps the caller's own
// credentials, and the right node checks them as if it had received the request directly. Before
// Start there are no peers.
type Peers struct {
	c       PeersConfig
	address string // of this node as the others reach it, "" if it has none
	proxy   *httputil.ReverseProxy
	carrier *http.Transport
	end     context.CancelFunc
	done    sync.WaitGroup

	mu       sync.Mutex
	at       map[string]*peer // by tag
	handed   map[*handover]struct{}
	open     int // requests handed over
	draining bool
}

type peerAddress struct {
	URL string `json:"url"`
}

// NewPeers makes Peers.
func NewPeers(c PeersConfig) *Peers {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	gate.Default(&c.limits.each, c.Sessions)
	c.limits.defaults(c.Limits)
	return &Peers{c: c, at: map[string]*peer{}, handed: map[*handover]struct{}{}}
}

// Start publishes this node's address and follows the others until Stop. ctx bounds only the start.
// Without an address other nodes cannot forward to this node.
func (p *Peers) Start(ctx context.Context, address string) error {
	p.address = address
	if address == "" {
		p.c.Log.Warn("other nodes cannot hand MCP sessions over to this one, since it listens on every address; set http.peer_url, or let the balancer keep a client at one node")
	}
	var err error
	if p.carrier, err = p.transport(); err != nil {
		return err
	}
	p.proxy = p.proxying()
	list, seq, err := p.c.Store.Documents(ctx, peerKind)
	if err != nil {
		return err
	}
	for _, d := range list {
		p.learn(d)
	}
	if err := p.say(ctx); err != nil {
		return err
	}
	run, end := context.WithCancel(context.WithoutCancel(ctx))
	p.end = end
	p.done.Go(func() {
		toolkeep.Follow(run, p.c.Store, seq, func(c toolkeep.Committed) {
			switch ch := c.Change.(type) {
			case toolkeep.PutDocument:
				p.learn(ch.Document)
			case toolkeep.DeleteDocument:
				p.forget(ch.Kind, ch.ID)
			}
		}, func(err error) { p.c.Log.Warn("the feed of nodes broke; it is read again", "error", err) })
	})
	p.done.Go(func() { p.beat(run) })
	p.done.Go(func() { p.watch(run) })
	return nil
}

// transport trusts the system's authorities and also this node's own certificate, since nodes often
// share a self-signed one. It shows that certificate, and follows its files when they change.
func (p *Peers) transport() (*http.Transport, error) {
	d := &net.Dialer{Timeout: 5 * time.Second, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	t := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		MaxResponseHeaderBytes: 1 << 20, DisableCompression: true}
	if p.c.Cert == "" {
		return t, nil
	}
	own, err := reload.Open(reload.Config[*tls.Config]{What: "the TLS certificate towards other nodes", Paths: []string{p.c.Cert, p.c.Key}, Now: p.c.Clock, Log: p.c.Log,
		Read: func() (*tls.Config, error) { return peerTLS(p.c.Cert, p.c.Key) }})
	if err != nil {
		return nil, err
	}
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, peerDial)
		defer cancel()
		return (&tls.Dialer{NetDialer: d, Config: own.Get()}).DialContext(ctx, network, addr)
	}
	return t, nil
}

// peerDial bounds connecting to another node with the TLS handshake.
const peerDial = 10 * time.Second

func peerTLS(cert, key string) (*tls.Config, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	own, err := os.ReadFile(cert)
	if err != nil {
		return nil, err
	}
	roots.AppendCertsFromPEM(own)
	pair, err := tls.LoadX509KeyPair(cert, key)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, err
}

func (p *Peers) learn(it toolkeep.Document) {
	if it.Kind != peerKind || it.ID == p.c.Node {
		return
	}
	var a peerAddress
	if err := json.Unmarshal(it.Body, &a); err != nil {
		return
	}
	u, err := url.Parse(a.URL)
	if err != nil || u.Host == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tag := Tag(it.ID)
	if was := p.at[tag]; was == nil || *was.url != *u {
		p.at[tag] = &peer{tag: tag, url: u}
	}
}

func (p *Peers) forget(kind, id string) {
	if kind != peerKind {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, Tag(id))
}

// say writes this node's address.
func (p *Peers) say(ctx context.Context) error {
	if p.address == "" {
		return nil
	}
	body, err := json.Marshal(peerAddress{URL: p.address})
	if err != nil {
		return err
	}
	return p.c.Store.Apply(ctx, toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: peerKind, ID: p.c.Node, Body: body, UpdatedAt: p.c.Clock(), UpdatedBy: p.c.Node}})
}

// beat renews this node's entry and removes nodes that have gone silent.
func (p *Peers) beat(ctx context.Context) {
	t := time.NewTicker(peerBeat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := p.say(ctx)
		items, _, lErr := p.c.Store.Documents(ctx, peerKind)
		for _, it := range items {
			if it.ID != p.c.Node && p.c.Clock().Sub(it.UpdatedAt) > peerGone {
				dErr := p.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: peerKind, ID: it.ID, Expect: it.Revision, By: p.c.Node})
				if !errors.Is(dErr, toolkeep.ErrNotFound) && !errors.Is(dErr, toolkeep.ErrStale) {
					lErr = errors.Join(lErr, dErr)
				}
			}
		}
		if err = errors.Join(err, lErr); err != nil && ctx.Err() == nil {
			p.c.Log.Debug("the list of nodes could not be updated", "error", err)
		}
	}
}

// Leave removes this node from the list. ctx bounds it.
func (p *Peers) Leave(ctx context.Context) {
	if p.carrier == nil {
		return
	}
	p.carrier.CloseIdleConnections()
	if p.address == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// If the store is unavailable the entry stays; other nodes remove it after peerGone.
	_ = p.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: peerKind, ID: p.c.Node, Expect: toolkeep.AnyRevision, By: p.c.Node})
}

// Stop ends what Start started.
func (p *Peers) Stop() {
	if p.end != nil {
		p.end()
	}
	p.done.Wait()
	if p.carrier != nil {
		p.carrier.CloseIdleConnections()
	}
}
