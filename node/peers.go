package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/mcpserver"
)

// peerKind is the kind of the items that say where the nodes of a store are.
const peerKind = "node"

const (
	peerBeat = 10 * time.Minute // a node says anew where it is
	peerGone = time.Hour        // one that has not for so long is taken out
)

// peers are the nodes on one store, for what belongs to one of them: an MCP
// session, a call that waits for an answer. A request that comes to another node is
// handed over with the caller's own credentials, which the right node checks as if
// it had come there.
type peers struct {
	n       *Node
	address string // of this node for the others, "" where it has none
	proxy   *httputil.ReverseProxy
	carrier *http.Transport

	mu sync.Mutex
	at map[string]*url.URL // by tag
}

type peerAddress struct {
	URL string `json:"url"`
}

func newPeers(n *Node) *peers { return &peers{n: n, at: map[string]*url.URL{}} }

// start makes this node known and follows the others until ctx ends. Where only one
// process has the store there are none.
func (p *peers) start(ctx context.Context) error {
	n := p.n
	if n.config.Store.DSN == "" {
		return nil
	}
	if p.address = n.config.HTTP.PeerURL; p.address == "" {
		if host, _, err := net.SplitHostPort(n.config.HTTP.Addr); err == nil {
			if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
				p.address = n.URL()
			}
		}
	}
	if p.address == "" {
		n.logger("nodes").Warn("other nodes cannot hand MCP sessions over to this one, since it listens on every address; set http.peer_url, or let the balancer keep a client at one node")
	}
	var err error
	if p.carrier, err = p.transport(); err != nil {
		return err
	}
	p.proxy = &httputil.ReverseProxy{Transport: p.carrier, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		to := r.In.Context().Value(handoverKey{}).(*handover).to
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
	}, ErrorHandler: p.failed}
	items, seq, err := n.store.Documents(ctx, peerKind)
	if err != nil {
		return err
	}
	for _, it := range items {
		p.learn(it)
	}
	if err := p.say(ctx); err != nil {
		return err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(n.faces.requests, stop)
	n.done.Go(func() {
		n.watch(run, seq, func(c toolkeep.Committed) {
			switch ch := c.Change.(type) {
			case toolkeep.PutDocument:
				p.learn(ch.Document)
			case toolkeep.DeleteDocument:
				p.forget(ch.Kind, ch.ID)
			}
		}, func(err error) { n.logger("nodes").Warn("the feed of nodes broke; it is taken up again", "error", err) })
	})
	n.done.Go(func() { p.beat(run) })
	return nil
}

// transport trusts what this node trusts and, since nodes often share a
// certificate that no authority signed, this node's own.
func (p *peers) transport() (*http.Transport, error) {
	t := &http.Transport{DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
		DisableCompression: true}
	c := p.n.config.TLS
	if !c.Enabled() {
		return t, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	own, err := os.ReadFile(c.Cert)
	if err != nil {
		return nil, err
	}
	roots.AppendCertsFromPEM(own)
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, err
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}
	return t, nil
}

func (p *peers) learn(it toolkeep.Document) {
	if it.Kind != peerKind || it.ID == p.n.name {
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
	p.at[mcpserver.Tag(it.ID)] = u
}

func (p *peers) forget(kind, id string) {
	if kind != peerKind {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, mcpserver.Tag(id))
}

// say writes where this node is.
func (p *peers) say(ctx context.Context) error {
	if p.address == "" {
		return nil
	}
	body, err := json.Marshal(peerAddress{URL: p.address})
	if err != nil {
		return err
	}
	return p.n.store.Apply(ctx, toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: peerKind, ID: p.n.name, Body: body, UpdatedAt: p.n.now(), UpdatedBy: p.n.name}})
}

// beat says anew that this node is there, and takes out who no longer does.
func (p *peers) beat(ctx context.Context) {
	t := time.NewTicker(peerBeat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := p.say(ctx)
		items, _, lErr := p.n.store.Documents(ctx, peerKind)
		for _, it := range items {
			if it.ID != p.n.name && p.n.now().Sub(it.UpdatedAt) > peerGone {
				dErr := p.n.store.Apply(ctx, toolkeep.DeleteDocument{Kind: peerKind, ID: it.ID, Expect: it.Revision, By: p.n.name})
				if !errors.Is(dErr, toolkeep.ErrNotFound) && !errors.Is(dErr, toolkeep.ErrStale) {
					lErr = errors.Join(lErr, dErr)
				}
			}
		}
		if err = errors.Join(err, lErr); err != nil && ctx.Err() == nil {
			p.n.logger("nodes").Debug("the list of nodes could not be kept up", "error", err)
		}
	}
}

// end takes this node out of the list.
func (p *peers) end(ctx context.Context) {
	if p.carrier == nil {
		return
	}
	p.carrier.CloseIdleConnections()
	if p.address == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// A store that is away keeps the entry; others take it out after peerGone.
	_ = p.n.store.Apply(ctx, toolkeep.DeleteDocument{Kind: peerKind, ID: p.n.name, Expect: toolkeep.AnyRevision, By: p.n.name})
}

// handover is one request on its way to another node.
type handover struct {
	to     *url.URL
	failed bool // nothing came back, and nothing was written
}

type handoverKey struct{}

// forward hands a request to the node of the tag; false where there is none, or it
// does not answer: its sessions are gone then, as the client is told.
func (p *peers) forward(w http.ResponseWriter, r *http.Request, tag string) bool {
	p.mu.Lock()
	to := p.at[tag]
	p.mu.Unlock()
	if to == nil {
		return false
	}
	h := &handover{to: to}
	p.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), handoverKey{}, h)))
	return !h.failed
}

// failed notes that the other node did not answer. A client that left needs no
// answer of ours either.
func (p *peers) failed(_ http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	r.Context().Value(handoverKey{}).(*handover).failed = true
	p.n.logger("nodes").Warn("another node could not be reached for an MCP session of its own", "error", err)
}
