package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

func (a *app) mcpCmd() *cobra.Command {
	var view string
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Speak MCP over standard input and output, for clients that start a program",
		Long: `Speak MCP over standard input and output, as a client of the running server. Where none runs for
the data directory, one is started in the background; it goes on when the client has gone
(toolkeep serve shows how to run it yourself).

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
	if strings.Contains(view, "..") || strings.ContainsAny(view, "?#") {
		return usagef("--view %q: write auto, all, search, sets/NAME or servers/NAME", view)
	}
	cl, err := a.connect()
	if err == nil && os.Getenv("TOOLKEEP_URL") == "" {
		_, err = cl.get(ctx, "/health/live", nil)
	}
	if err != nil {
		if os.Getenv("TOOLKEEP_URL") != "" {
			return err
		}
		if cl, err = a.startServer(ctx); err != nil {
			return err
		}
	}
	address := cl.base + "/mcp"
	if view != "" {
		address += "/" + strings.Trim(view, "/")
	}
	b := &bridge{a: a, lines: transport.Lines(readCloser{a.stdin}, a.stdout, transport.LinesConfig{})}
	b.open = func() *transport.HTTPConn {
		return transport.HTTP(transport.HTTPConfig{URL: address, Client: &http.Client{Transport: cl.http.Transport}, Header: func(context.Context) (http.Header, error) {
			return http.Header{"Authorization": {"Bearer " + cl.key}, "User-Agent": {"toolkeep/" + version}}, nil
		}})
	}
	return b.run(ctx)
}

// readCloser lets the transport give up reading standard input.
type readCloser struct{ io.Reader }

func (r readCloser) Close() error {
	if c, ok := r.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// startServer starts a server that outlives this command, and waits until it answers.
func (a *app) startServer(ctx context.Context) (*client, error) {
	if err := os.MkdirAll(a.data, 0o700); err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	log, err := os.OpenFile(filepath.Join(a.data, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	cmd := exec.Command(self, "serve", "--data", a.data)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, &failure{code: exitUnavailable, err: err}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	limit := time.After(30 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, &failure{code: exitRefused, err: errors.New("interrupted")}
		case <-ended:
			// Another bridge may have been first with the data directory.
			if cl, err := a.connect(); err == nil {
				if _, err := cl.get(ctx, "/health/live", nil); err == nil {
					return cl, nil
				}
			}
			return nil, &failure{code: exitUnavailable, err: fmt.Errorf("no server runs for %s and none could be started; %s says why", a.data, log.Name())}
		case <-limit:
			return nil, &failure{code: exitUnavailable, err: fmt.Errorf("a server was started for %s and does not answer; %s says why", a.data, log.Name())}
		case <-tick.C:
			cl, err := a.connect()
			if err != nil {
				continue
			}
			if _, err := cl.get(ctx, "/health/live", nil); err == nil {
				fmt.Fprintf(a.stderr, "toolkeep: started a server for %s, process %d; its log is %s\n", a.data, cmd.Process.Pid, log.Name())
				return cl, nil
			}
		}
	}
}

// bridge hands messages from standard input to the server and back. A session
// that the server no longer knows is made again with the client's own initialize.
type bridge struct {
	a     *app
	lines *transport.LinesConn
	open  func() *transport.HTTPConn

	mu    sync.Mutex
	conn  *transport.HTTPConn
	begin *mcp.Message // the client's initialize, nil in 2026-07-28
	work  sync.WaitGroup
}

// renewed is the id of an initialize that the bridge sends by itself.
var renewed = []byte(`"toolkeep-bridge"`)

func (b *bridge) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.conn = b.open()
	b.work.Go(func() { b.pump(ctx, b.conn) })
	var err error
	for {
		var m *mcp.Message
		if m, err = b.lines.Read(ctx); err != nil {
			break
		}
		if m.Method == mcp.MethodInitialize {
			b.mu.Lock()
			b.begin = m
			b.mu.Unlock()
		}
		// An initialize, and what is no request, keep their place; other requests run
		// side by side.
		if m.IsRequest() && m.Method != mcp.MethodInitialize {
			b.work.Go(func() { b.send(ctx, m) })
			continue
		}
		b.send(ctx, m)
	}
	cancel()
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	conn.Close()
	b.work.Wait()
	b.lines.Close()
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return &failure{code: exitUnavailable, err: err}
}

// pump hands what the server says to the client.
func (b *bridge) pump(ctx context.Context, conn *transport.HTTPConn) {
	for {
		m, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if m.IsResponse() && string(m.ID) == string(renewed) {
			continue
		}
		if err := b.lines.Write(ctx, m); err != nil {
			return
		}
	}
}

func (b *bridge) send(ctx context.Context, m *mcp.Message) {
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	err := conn.Write(ctx, m)
	if errors.Is(err, transport.ErrSession) && m.Method != mcp.MethodInitialize {
		if conn = b.renew(ctx, conn); conn != nil {
			err = conn.Write(ctx, m)
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
	_ = b.lines.Write(ctx, mcp.Refuse(m.ID, own)) // a client that is gone needs no answer
}

// renew opens a session in place of a lost one; nil where it cannot.
func (b *bridge) renew(ctx context.Context, lost *transport.HTTPConn) *transport.HTTPConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != lost {
		return b.conn // another message was first
	}
	if b.begin == nil {
		return nil
	}
	lost.Close()
	conn := b.open()
	b.conn = conn
	b.work.Go(func() { b.pump(ctx, conn) })
	again := *b.begin
	again.ID = renewed
	if err := conn.Write(ctx, &again); err != nil {
		return nil
	}
	if err := conn.Write(ctx, &mcp.Message{Method: mcp.NotificationInitialized}); err != nil {
		return nil
	}
	return conn
}
