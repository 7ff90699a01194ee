package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/clientconfig"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

func (a *app) mcpCmd() *cobra.Command {
	var view string
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Speak MCP over standard input and output, for clients that start a program",
		Long: `Speak MCP over standard input and output, as a client of the running server. If none runs for
the data directory, one is started in the background; it keeps running when the client has gone
(toolkeep serve --help shows how to run it yourself). If the last one was started with flags or
variables of its own, none is started: requests are refused until you start it again.

The views are those of HTTP: auto (default), all, search, sets/NAME, servers/NAME.`,
		Example: `  claude mcp add toolkeep -- toolkeep mcp
  toolkeep mcp --view servers/files
  TOOLKEEP_URL=https://tools.example TOOLKEEP_KEY=… toolkeep mcp`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bridge(cmd.Context(), view) },
	}
	c.Flags().StringVar(&view, "view", "", "auto, all, search, sets/NAME or servers/NAME; the server's setting mcp.view without it")
	return c
}

func (a *app) bridge(ctx context.Context, view string) error {
	if !clientconfig.IsView(strings.Trim(view, "/")) {
		return usagef("--view %q: write auto, all, search, sets/NAME or servers/NAME", view)
	}
	dir, err := filepath.Abs(a.data) // what is told and handed on holds in every folder
	if err != nil {
		return usagef("the data directory %q has no place: %v", a.data, err)
	}
	a.data = dir
	b := &bridge{a: a, view: strings.Trim(view, "/"), lines: transport.Lines(readCloser{a.stdin}, a.stdout, transport.LinesConfig{Answer: true}),
		local: os.Getenv("TOOLKEEP_URL") == "", flights: map[string]flight{}, subscribed: map[string]*mcp.Message{}, gone: make(chan struct{}, 1)}
	if b.conn, err = b.open(ctx, b.local); err != nil {
		b.lines.Close()
		return err
	}
	return b.run(ctx)
}

// readCloser lets the transport stop reading standard input.
type readCloser struct{ io.Reader }

func (r readCloser) Close() error {
	if c, ok := r.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// mayStart refuses to start a server in place of one that was started with flags or variables that this process does
// not have, and that has ended: another would be at other addresses, with other tools and roles.
func mayStart(data string) error {
	last, err := datadir.ReadStartedFile(data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &failure{code: exitUnavailable, err: fmt.Errorf("how the server of %s was started cannot be read: %w", data, err)}
	}
	with := slices.DeleteFunc(last.With, func(name string) bool { return os.Getenv(name) != "" })
	if last.Bridge || len(with) == 0 {
		return nil
	}
	return &failure{code: exitUnavailable, err: fmt.Errorf("the server of %s does not run. It was started with settings of its own (%s), which toolkeep mcp does not know: start it as before with `toolkeep serve`; "+
		"or delete %s, and toolkeep mcp starts one without them", data, strings.Join(with, ", "), filepath.Join(data, datadir.Started))}
}

// startServer starts a server that outlives this command, and waits until it answers.
func (a *app) startServer(ctx context.Context) (*client, error) {
	if pid, _ := datadir.Holder(a.data); pid == 0 {
		if err := mayStart(a.data); err != nil {
			return nil, err
		}
	}
	_, err := os.Stat(a.data)
	made := errors.Is(err, fs.ErrNotExist)
	undo, err := datadir.Make(a.data, 0o700)
	if err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	log, err := os.OpenFile(filepath.Join(a.data, datadir.ServerLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	defer log.Close()
	var before int64 // bytes in the log
	if info, err := log.Stat(); err == nil {
		before = info.Size()
	}
	self, err := os.Executable()
	if err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	cmd := exec.Command(self, "serve", "--data", a.data, "--"+bridgeFlag)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	exit := make(chan error, 1)
	go func() { exit <- cmd.Wait() }()
	ended, ours := exit, true
	limit := time.After(30 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, &failure{code: exitRefused, err: errors.New("interrupted")}
		case <-ended:
			// Another bridge may already have started a server for the data directory.
			if cl, err := a.connect(); err == nil {
				if _, err := cl.get(ctx, "/health/live", nil); err == nil {
					return cl, nil
				}
			}
			if pid, _ := datadir.Holder(a.data); pid != 0 { // it starts
				ended, ours = nil, false
				continue
			}
			if err := mayStart(a.data); err != nil { // the other one ended meanwhile
				return nil, err
			}
			why := log.Name() + " says why"
			if !datadir.Is(a.data) { // it refused to start, so that its log is all there is
				raw, _ := readFile(log.Name())
				raw = raw[min(before, int64(len(raw))):]
				why = strings.TrimPrefix(toolkeep.ClipBytes(strings.TrimSpace(string(raw)), 2000), "toolkeep: ")
				if strings.Contains(why, "--port") {
					why += ". toolkeep mcp has no such flags: set TOOLKEEP_HTTP_ADDR, TOOLKEEP_GRPC_ADDR or TOOLKEEP_METRICS_ADDR, or start the server yourself"
				}
				if made {
					_ = os.Remove(log.Name())
					undo()
				}
			}
			return nil, &failure{code: exitUnavailable, err: fmt.Errorf("no server runs for %s and none could be started; %s", a.data, why)}
		case <-limit:
			return nil, &failure{code: exitUnavailable, err: fmt.Errorf("a server was started for %s and does not answer; %s says why", a.data, log.Name())}
		case <-tick.C:
			cl, err := a.connect()
			if err != nil {
				continue
			}
			if _, err := cl.get(ctx, "/health/live", nil); err == nil {
				if !ours {
					return cl, nil
				}
				fmt.Fprintf(a.stderr, "toolkeep: started a server for %s, process %d; its log is %s\n", a.data, cmd.Process.Pid, log.Name())
				return cl, nil
			}
		}
	}
}

// afterEnd is how long open requests may still be answered after the client has closed standard input.
const afterEnd = 10 * time.Second

// idleCheck is how often the bridge looks whether it must reconnect while its client is silent.
const idleCheck = 5 * time.Second

// bridge passes messages between standard input and output and the server. If the server has lost the session or
// was restarted, the bridge repeats the client's own initialize, log level and subscriptions, and tells the client
// that its lists may have changed.
type bridge struct {
	a     *app
	view  string
	local bool // the server runs on the data directory
	lines *transport.LinesConn

	mu         sync.Mutex
	conn       *uplink
	ctx        context.Context         // the context of run
	begin      *mcp.Message            // the client's initialize, nil in 2026-07-28
	declared   []byte                  // the capabilities that the client was told
	level      *mcp.Message            // its last logging/setLevel that succeeded
	subscribed map[string]*mcp.Message // its resources/subscribe that succeeded, by URI
	flights    map[string]flight       // open requests, by id
	pumps      sync.WaitGroup
	sends      sync.WaitGroup
	gone       chan struct{} // a session was found lost

	renewing sync.Mutex // locked before mu
}

// uplink is a connection to the server at base.
type uplink struct {
	*transport.HTTPConn
	base string
	lost atomic.Bool // the server does not know the session any more
}

// flight is an open request.
type flight struct {
	cancel context.CancelFunc
	m      *mcp.Message
}

// ownID begins the ids of requests that the bridge sends itself.
var ownID = []byte(`"toolkeep-bridge`)

// open connects to the server's current address. A local server that does not run is started if start is set.
func (b *bridge) open(ctx context.Context, start bool) (*uplink, error) {
	cl, err := b.a.connect()
	if b.local {
		if err == nil {
			_, err = cl.get(ctx, "/health/live", nil)
		}
		if err != nil && start {
			cl, err = b.a.startServer(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	address := cl.base + "/mcp"
	if b.view != "" {
		address += "/" + b.view
	}
	return &uplink{base: cl.base, HTTPConn: transport.HTTP(transport.HTTPConfig{URL: address, RetryMax: idleCheck,
		Client: &http.Client{Transport: cl.http.Transport}, Header: func(context.Context) (http.Header, error) {
			return http.Header{"Authorization": {"Bearer " + cl.key}, "User-Agent": {"toolkeep/" + version}}, nil
		}})}, nil
}

func (b *bridge) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.ctx = ctx
	first := b.conn
	b.pumps.Go(func() { b.pump(ctx, first) })
	b.sends.Go(func() { b.watch(ctx) })
	var err error
	for {
		var m *mcp.Message
		if m, err = b.lines.Read(ctx); err != nil {
			break
		}
		switch {
		case m.Method == mcp.MethodInitialize && m.ID == nil:
			_ = b.lines.Write(ctx, mcp.Refuse(nil, mcp.NewError(mcp.CodeInvalidRequest, "initialize is a request; give it an id")))
		case m.Method == mcp.MethodInitialize:
			b.mu.Lock()
			b.begin = m
			b.mu.Unlock()
			b.send(b.flight(ctx, m), m)
		case m.IsRequest():
			// Initialize and notifications keep their order; other requests run concurrently.
			of := b.flight(ctx, m)
			b.sends.Go(func() { b.send(of, m) })
		case m.Method == mcp.NotificationCancelled && b.cancelled(m):
		default:
			b.send(ctx, m)
		}
	}
	if errors.Is(err, io.EOF) {
		b.settle(ctx)
	}
	cancel()
	b.sends.Wait()
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	conn.Close()
	b.pumps.Wait()
	b.lines.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return &failure{code: exitUnavailable, err: err}
}

// flight registers a request. In 2026-07-28 over HTTP, cancelling its context cancels it.
func (b *bridge) flight(ctx context.Context, m *mcp.Message) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flights[string(m.ID)] = flight{cancel, m}
	if m.Method == mcp.MethodListen {
		delete(b.flights, string(m.ID)) // nothing waits for it
	}
	return ctx
}

// answered removes a finished request. result is nil unless it succeeded.
func (b *bridge) answered(id, result []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.flights[string(id)]
	if !ok {
		return
	}
	f.cancel()
	delete(b.flights, string(id))
	if result == nil {
		return
	}
	switch uri := mcp.Text(f.m.Params, "uri"); f.m.Method { // what holds until the session ends
	case mcp.MethodInitialize:
		b.declared, b.level = bytes.Clone(mcp.Get(result, "capabilities")), nil
		clear(b.subscribed)
	case mcp.MethodSetLevel:
		b.level = f.m
	case mcp.MethodSubscribe:
		b.subscribed[uri] = f.m
	case mcp.MethodUnsubscribe:
		delete(b.subscribed, uri)
	}
}

// cancelled cancels a request of 2026-07-28; the server cancels others.
func (b *bridge) cancelled(m *mcp.Message) bool {
	b.mu.Lock()
	legacy := b.begin != nil
	b.mu.Unlock()
	if !legacy {
		b.answered(mcp.Get(m.Params, "requestId"), nil)
	}
	return !legacy
}

// settle waits for outstanding responses.
func (b *bridge) settle(ctx context.Context) {
	limit := time.After(afterEnd)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		n := len(b.flights)
		b.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// pump passes the server's messages to the client.
func (b *bridge) pump(ctx context.Context, conn *uplink) {
	for {
		m, err := conn.Read(ctx)
		if errors.Is(err, transport.ErrSession) {
			conn.lost.Store(true)
			select {
			case b.gone <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return
		}
		if m.IsResponse() && bytes.HasPrefix(m.ID, ownID) {
			continue
		}
		if m.Lost != nil {
			m = mcp.Refuse(m.ID, mcp.NewError(mcp.CodeInternal, "the answer of the Toolkeep server was lost: "+m.Lost.Error()))
		}
		if err := b.lines.Write(ctx, m); err != nil {
			return
		}
		if m.IsResponse() {
			b.answered(m.ID, m.Result)
		}
	}
}

func (b *bridge) send(ctx context.Context, m *mcp.Message) {
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	err := conn.Write(ctx, m)
	var unsent *transport.SendError
	session := errors.Is(err, transport.ErrSession)
	if session || b.local && errors.As(err, &unsent) && unsent.NothingSent && ctx.Err() == nil {
		if conn, again := b.renew(conn, m.Method != mcp.MethodInitialize, b.local); again == nil {
			err = conn.Write(ctx, m)
		} else if !session {
			err = again
		}
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	if !m.IsRequest() {
		fmt.Fprintln(b.a.stderr, "toolkeep: a message could not be delivered:", err)
		return
	}
	var own *mcp.Error
	if !errors.As(err, &own) {
		own = mcp.NewError(mcp.CodeInternal, "the Toolkeep server cannot be reached: "+err.Error())
	}
	_ = b.lines.Write(ctx, mcp.Refuse(m.ID, own)) // a disconnected client needs no response
	b.answered(m.ID, nil)
}

// watch reconnects while the client is silent: after a lost session, and when the local server answers at another
// address. It starts no server, so that one which was stopped on purpose stays stopped.
func (b *bridge) watch(ctx context.Context) {
	tick := time.NewTicker(idleCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.gone:
		}
		b.mu.Lock()
		conn, begun := b.conn, b.declared != nil
		b.mu.Unlock()
		if !begun { // no session to lose: so in 2026-07-28
			continue
		}
		cl, err := b.a.connect()
		if err != nil || cl.base == conn.base && !conn.lost.Load() {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, idleCheck)
		_, err = cl.get(asked, "/health/live", nil)
		cancel()
		if err == nil {
			_, _ = b.renew(conn, true, false) // tried again at the next tick, or by the client's next message
		}
	}
}

// renew reconnects after a lost session or server; introduce repeats the client's initialize there, and what the
// session held. start starts a local server that does not run.
func (b *bridge) renew(lost *uplink, introduce, start bool) (*uplink, error) {
	b.mu.Lock()
	conn, begin := b.conn, b.begin
	b.mu.Unlock()
	if conn != lost {
		return conn, nil // another message has already reconnected
	}
	b.renewing.Lock()
	defer b.renewing.Unlock()
	b.mu.Lock()
	conn = b.conn
	b.mu.Unlock()
	if conn != lost {
		return conn, nil
	}
	lost.Close()
	conn, err := b.open(b.ctx, start)
	if err != nil {
		return nil, err
	}
	b.pumps.Go(func() { b.pump(b.ctx, conn) })
	if introduce && begin != nil {
		again := *begin
		again.ID = append(bytes.Clone(ownID), '"')
		if err = conn.Write(b.ctx, &again); err == nil {
			err = conn.Write(b.ctx, &mcp.Message{Method: mcp.NotificationInitialized})
		}
		if err != nil {
			conn.Close()
			return nil, err
		}
	}
	b.mu.Lock()
	b.conn = conn
	b.mu.Unlock()
	if introduce && begin != nil {
		b.sends.Go(func() { b.replay(conn) })
	}
	return conn, nil
}

// replay gives a new session what the client had set in the old one, and tells the client what may have changed
// meanwhile. A server that refuses something now has its reason; the client finds it when it asks.
func (b *bridge) replay(conn *uplink) {
	b.mu.Lock()
	declared, held := b.declared, slices.Collect(maps.Values(b.subscribed))
	if b.level != nil {
		held = append(held, b.level)
	}
	b.mu.Unlock()
	for i, m := range held {
		again := *m
		again.ID = fmt.Appendf(nil, `%s-%d"`, ownID, i+1)
		_ = conn.Write(b.ctx, &again)
	}
	for of, notice := range map[string]string{"tools": mcp.NotificationToolsChanged, "prompts": mcp.NotificationPromptsChanged, "resources": mcp.NotificationResourcesChanged} {
		if string(mcp.Get(declared, of, "listChanged")) == "true" {
			_ = b.lines.Write(b.ctx, &mcp.Message{Method: notice})
		}
	}
	for _, m := range held {
		if m.Method == mcp.MethodSubscribe {
			_ = b.lines.Write(b.ctx, &mcp.Message{Method: mcp.NotificationResourceUpdated, Params: mcp.Set([]byte("{}"), mcp.Get(m.Params, "uri"), "uri")})
		}
	}
}
