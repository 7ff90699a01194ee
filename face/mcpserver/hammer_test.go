package mcpserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// Sessions come and go, lists change, calls ask, report progress and are cut off, and the server
// stops in the middle of it. Nothing may hang, leak or race.
func TestHammer(t *testing.T) {
	s := newSystem(t)
	s.Limits.listDelay, s.Limits.PrincipalSessions, s.Limits.answerWithin = time.Millisecond, 5, 50*time.Millisecond
	s.Invoker = fakeInvoker(func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		if c.Caller != nil {
			c.Caller.Progress(toolkeep.Progress{Percent: 1})
			if a, ok := c.Caller.(toolkeep.Asker); ok {
				if _, err := a.Ask(ctx, mcp.MethodElicit, []byte(formQuestion)); err != nil {
					return nil, toolkeep.AsError(err)
				}
			}
		}
		return echo(ctx, p, c)
	})
	s.publish(manifest("demo.echo"))
	s.start()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	// send ignores the answer, but there must be one.
	send := func(ctx context.Context, method, body string, headers ...string) http.Header {
		resp, err := client.Do(s.request(method, "/mcp/auto", body, headers...).WithContext(ctx))
		if err != nil {
			return http.Header{}
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Header
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range 12 {
				id := send(ctx, "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}}`).Get("Mcp-Session-Id")
				h := []string{"Mcp-Session-Id: " + id, "Mcp-Protocol-Version: 2025-11-25"}
				short, stop := context.WithTimeout(ctx, time.Duration(5+n)*time.Millisecond)
				all.Go(func() { send(short, "GET", "", append([]string{"Accept: text/event-stream"}, h...)...) })
				all.Go(func() { send(short, "POST", slowCall, h...) })
				send(ctx, "POST", listCall, h...)
				send(ctx, "POST", own("", "find_tools", `{"query":"does what"}`), h...)
				body, mh := modern("tools/call", echoParams, `{"elicitation":{}}`)
				send(short, "POST", body, mh...)
				body, mh = modern("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`, "{}")
				send(short, "POST", body, mh...)
				<-short.Done()
				stop()
				if n%2 == 0 {
					send(ctx, "DELETE", "", h...)
				}
			}
		})
	}
	all.Go(func() {
		for n := range 10 {
			s.publish(manifest(fmt.Sprintf("demo.more%d", n)))
		}
	})
	all.Go(func() {
		<-time.After(120 * time.Millisecond)
		s.server.Drain()
		<-time.After(50 * time.Millisecond)
		s.server.Close()
	})
	all.Wait()
	if ctx.Err() != nil {
		t.Fatal("something hung")
	}
	s.server.Close()
	until(t, "nothing is left", func() bool { // a client that hung up does not wait for its handler
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		s.server.parking.mu.Lock()
		defer s.server.parking.mu.Unlock()
		return len(s.server.sessions)+len(s.server.owners)+len(s.server.parking.all) == 0 && s.server.listens.none()
	})
	if log := s.log.String(); strings.Contains(log, "panicked") {
		t.Error(log)
	}
}
