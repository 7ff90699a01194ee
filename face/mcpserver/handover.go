package mcpserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

// handoverLimits bound what a request that another node answers holds here. Zero fields take the
// default.
type handoverLimits struct {
	each  int           // requests at once to one node; default 10,000
	all   int           // and to all; default twice that
	begin time.Duration // until an answer begins that has no reason to wait; default 30 s
	quiet time.Duration // without a byte, after which the node is asked whether it lives; default 5 s
	probe time.Duration // until it says so; default 10 s
	idle  time.Duration // of an event stream, which has comments in between; default three of them
	write time.Duration // until the client takes what came; default that of all answers
	look  time.Duration // between two looks at what is open; default 1 s
}

func (l *handoverLimits) defaults(g gate.Limits) {
	gate.Default(&l.each, 10_000)
	gate.Default(&l.all, 2*l.each)
	gate.Default(&l.begin, 30*time.Second)
	gate.Default(&l.quiet, 5*time.Second)
	gate.Default(&l.probe, 10*time.Second)
	gate.Default(&l.idle, 3*g.KeepAlive)
	gate.Default(&l.write, g.WriteTimeout)
	gate.Default(&l.look, time.Second)
}

// peer is another node. Peers.mu guards it.
type peer struct {
	tag     string
	url     *url.URL
	open    int       // requests handed over to it
	heard   time.Time // when it last said that it lives
	probing bool
	silent  bool // it did not say so in time; it is asked until it does
}

// handover is one request being forwarded to another node.
type handover struct {
	to      *peer
	url     *url.URL
	w       http.ResponseWriter
	client  context.Context // of the client's request
	stop    context.CancelCauseFunc
	started time.Time
	atOnce  bool // the answer has no reason to wait for a call's end
	own     bool // the session's own stream, which ends when the node drains

	sent, began, stream atomic.Bool  // it has a connection, an answer, one of events
	heard               atomic.Int64 // UnixNano of the latest byte; 0 before the first
	err                 error        // why nothing was answered
}

type handoverKey struct{}

// errDrains ends a session's own stream because the node stops; the client gets its end.
var errDrains = errors.New("the node drains")

// Causes, for the log.
var (
	errSilent = errors.New("the node has not answered for some time, and is asked whether it lives")
	errSlow   = errors.New("the node lives, and this request was not answered in time")
)

// proxying carries requests to the other nodes.
func (p *Peers) proxying() *httputil.ReverseProxy {
	of := func(r *http.Request) *handover { return r.Context().Value(handoverKey{}).(*handover) }
	return &httputil.ReverseProxy{Transport: p.carrier, FlushInterval: -1, ErrorLog: slog.NewLogLogger(p.c.Log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			to := of(r.In).url
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
		},
		ModifyResponse: func(r *http.Response) error {
			h := of(r.Request)
			for name := range r.Header { // both nodes' gates set some
				h.w.Header().Del(name)
			}
			h.hear()
			h.stream.Store(strings.HasPrefix(r.Header.Get("Content-Type"), typeEvents[0]))
			h.began.Store(true)
			r.Body = &heardBody{r.Body, h, r.Request.Context()}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) { p.failed(of(r), r.Context(), err) },
	}
}

func (h *handover) hear() { h.heard.Store(time.Now().UnixNano()) }

// quiet is for how long nothing has come.
func (h *handover) quiet(now time.Time) time.Duration {
	if at := h.heard.Load(); at != 0 {
		return now.Sub(time.Unix(0, at))
	}
	return now.Sub(h.started)
}

// heardBody notes when bytes came, and ends well when the node drains.
type heardBody struct {
	io.ReadCloser
	h   *handover
	ctx context.Context
}

func (b *heardBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if n > 0 {
		b.h.hear()
	}
	if err != nil && errors.Is(context.Cause(b.ctx), errDrains) {
		err = io.EOF
	}
	return n, err
}

// handedWriter gives each write to the client its own deadline.
type handedWriter struct {
	http.ResponseWriter
	each time.Duration
}

func (w handedWriter) Write(b []byte) (int, error) {
	w.within()
	return w.ResponseWriter.Write(b)
}

// within also lets the end be written, which may come long after the last write.
func (w handedWriter) within() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.each)) // a writer without deadlines has no slow client
}

func (w handedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Forward implements Config.Forward: it hands a request to the node of the tag. toolkeep.ErrNotFound
// if there is no such node: then its sessions are gone, and the client is told so. E3913 if it does
// not answer, with an exact NothingSent, E3811 over the limits, E3912 for a stream while this node drains.
func (p *Peers) Forward(w http.ResponseWriter, r *http.Request, tag string) error {
	h, err := p.hand(w, r, tag)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(context.WithValue(r.Context(), handoverKey{}, h))
	h.stop = stop
	defer stop(nil)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { h.sent.Store(true) }})
	p.mu.Lock()
	p.handed[h] = struct{}{}
	p.mu.Unlock()
	defer p.over(h)
	to := handedWriter{w, p.c.limits.write}
	p.proxy.ServeHTTP(to, r.WithContext(ctx))
	to.within()
	return h.err
}

// hand counts a request for the node of the tag.
func (p *Peers) hand(w http.ResponseWriter, r *http.Request, tag string) (*handover, error) {
	_, stream := accepts(r.Header["Accept"])
	h := &handover{w: w, client: r.Context(), started: time.Now(), atOnce: stream || r.Method != http.MethodPost, own: r.Method == http.MethodGet}
	silent, err := p.count(h, tag)
	if silent != nil {
		err = p.away(p.gone(), silent, false, errSilent)
	}
	return h, err
}

// count is hand without the answer for a silent node, which it returns.
func (p *Peers) count(h *handover, tag string) (silent *peer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := p.at[tag]
	switch {
	case to == nil:
		return nil, toolkeep.ErrNotFound
	case h.own && p.draining:
		return nil, draining()
	case to.silent:
		return to, nil
	case to.open >= p.c.limits.each || p.open >= p.c.limits.all:
		return nil, toolkeep.NewError(toolkeep.Backpressure, "this node waits for %d answers of other nodes already; try again, or keep a client at one node", p.open).After(time.Second)
	}
	h.to, h.url = to, to.url
	to.open++
	p.open++
	return nil, nil
}

// over takes a request off the count.
func (p *Peers) over(h *handover) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.handed, h)
	h.to.open--
	p.open--
}

// failed records that the other node did not answer. A client that has left gets no answer either.
func (p *Peers) failed(h *handover, ctx context.Context, err error) {
	var e *toolkeep.Error
	switch cause := context.Cause(ctx); {
	case h.client.Err() != nil:
	case errors.Is(cause, errDrains):
		h.err = draining()
	case errors.Is(err, syscall.ECONNREFUSED): // its process has ended, and its sessions with it
		p.c.Log.Warn("another node could not be reached for an MCP session of its own", "node", h.to.tag, "error", err)
		h.err = toolkeep.ErrNotFound
	case errors.As(cause, &e):
		h.err = e
	default:
		h.err = p.away(p.gone(), h.to, h.sent.Load(), err)
	}
}

// away is the answer to a request for a node that does not answer. Where the nodes count it as gone
// and nothing was sent, the client begins a new session. NothingSent is exact.
func (p *Peers) away(gone func(tag string) bool, to *peer, sent bool, cause error) error {
	if !sent && gone(to.tag) {
		return toolkeep.ErrNotFound
	}
	e := toolkeep.NewError(toolkeep.NodeUnavailable, "the node that has this MCP session does not answer; try again soon").After(p.c.limits.quiet).Because(cause)
	e.NothingSent = !sent
	return e
}

// gone asks which nodes live; the answer tells whether one is known not to. A young node may not be
// known yet, so only silence makes a reason to ask. It is never asked while p.mu is held.
func (p *Peers) gone() func(tag string) bool {
	var names []string
	if p.c.Members != nil {
		if live, age := p.c.Members.Names(); age < toolkeep.NodeGone {
			names = live
		}
	}
	return func(tag string) bool {
		return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return Tag(name) == tag })
	}
}

// watch ends requests that wait for too long, until ctx ends.
func (p *Peers) watch(ctx context.Context) {
	t := time.NewTicker(p.c.limits.look)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			p.look(ctx, now)
		}
	}
}

// look ends what is over its limits, and asks nodes from which nothing comes whether they live.
func (p *Peers) look(ctx context.Context, now time.Time) {
	gone := p.gone()
	p.mu.Lock()
	defer p.mu.Unlock()
	ask := map[*peer]bool{}
	for h := range p.handed {
		if at := h.heard.Load(); at != 0 && time.Unix(0, at).After(h.to.heard) {
			h.to.heard = time.Unix(0, at)
		}
		if !h.began.Load() && h.atOnce && now.Sub(h.started) > p.c.limits.begin || h.stream.Load() && h.quiet(now) > p.c.limits.idle {
			h.stop(p.away(gone, h.to, h.sent.Load(), errSlow))
		}
		ask[h.to] = true
	}
	for _, to := range p.at {
		if to.silent {
			ask[to] = true
		}
	}
	for to := range ask {
		if !to.probing && (to.silent || now.Sub(to.heard) > p.c.limits.quiet) {
			to.probing = true
			p.done.Go(func() { p.ask(ctx, to, to.url) })
		}
	}
}

// ask asks a node whether it lives. Any answer says so, and a refused connection says that its
// process has ended: then the requests that it had have ended too.
func (p *Peers) ask(ctx context.Context, to *peer, at *url.URL) {
	own, cancel := context.WithTimeout(ctx, p.c.limits.probe)
	defer cancel()
	r, err := http.NewRequestWithContext(own, http.MethodGet, at.Scheme+"://"+at.Host+"/health/live", http.NoBody)
	if err == nil {
		var resp *http.Response
		if resp, err = p.carrier.RoundTrip(r); err == nil {
			err = resp.Body.Close()
		}
	}
	if ctx.Err() != nil {
		return
	}
	now, gone := time.Now(), p.gone()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := to.silent
	to.probing, to.heard, to.silent = false, now, err != nil && !errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case to.silent && !was:
		p.c.Log.Warn("another node does not answer; requests for its MCP sessions are refused until it does", "node", to.tag, "error", err)
	case was && !to.silent:
		p.c.Log.Info("another node answers again", "node", to.tag)
	}
	for h := range p.handed {
		if h.to == to && to.silent && h.quiet(now) > p.c.limits.quiet {
			h.stop(p.away(gone, to, h.sent.Load(), err))
		}
	}
}

// Drain ends the sessions' own streams that are handed over, as Server.Drain ends those of this node.
func (p *Peers) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	for h := range p.handed {
		if h.own {
			h.stop(errDrains)
		}
	}
}
