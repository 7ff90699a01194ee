//go:build linux

package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// TestModernServerOverStdio uses a server that supports only 2026-07-28.
func TestModernServerOverStdio(t *testing.T) {
	spec := stdioSpec(t, "modern")
	spec.Capabilities = []string{CapElicitation}
	s := start(t, testConfig(t), spec)
	r := toolCall(alice(), "params", "x")
	r.Params = []byte(`{"name":"params","arguments":{"text":"x"},"_meta":{"a":1,"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}`)
	want := `{"name":"params","arguments":{"text":"x"},"_meta":{"a":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"toolkeep","version":"dev"},"io.modelcontextprotocol/clientCapabilities":{}}}`
	if got := call(t, s, r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if st := status(t, s, alice()); st.Version != mcp.V20260728 {
		t.Errorf("%+v", st)
	}
	// A request in the result goes to the caller, and the call goes on.
	l := &listener{answer: yes}
	r = toolCall(alice(), "confirm", "")
	r.Peer, r.PeerCapabilities = l, []byte(`{"elicitation":{"form":{}}}`)
	if got := call(t, s, r); got != `s1 {"a":{"action":"accept","content":{}}}` {
		t.Error(got)
	}
	if fmt.Sprint(l.asks) != `[elicitation/create {"message":"sure?"}]` {
		t.Error(l.asks)
	}
	// It must not go on for ever, nor without a caller that can answer.
	r.Params = toolCall(alice(), "confirm-for-ever", "").Params
	if e := fails(t, s, r, toolkeep.MCPError); !strings.Contains(e.Message, "10 times") || len(l.asks) != maxRounds {
		t.Errorf("%v after %d questions", e, len(l.asks))
	}
	fails(t, s, toolCall(alice(), "confirm", ""), toolkeep.MCPError)
	r.Peer = &listener{}
	r.Params = toolCall(alice(), "confirm", "").Params
	fails(t, s, r, toolkeep.MCPError)
	r.Peer = &listener{answer: func(context.Context, string, []byte) ([]byte, error) {
		return nil, toolkeep.NewError(toolkeep.ApprovalDenied, "no")
	}}
	fails(t, s, r, toolkeep.ApprovalDenied)
	// Over stdio, cancellation is still a notification.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		eventually(t, "it is in the air", func() bool { return strings.Contains(logs(t, s, alice()), "hanging") })
		cancel()
	}()
	failsIn(t, ctx, s, toolCall(bob(), "hang", ""), toolkeep.Cancelled)
	eventually(t, "the server is told", func() bool { return strings.Contains(logs(t, s, alice()), "cancelled") })
}

// TestModernServerThatIsSlow: the first probe gets no answer, as from a server that is
// still being downloaded.
func TestModernServerThatIsSlow(t *testing.T) {
	spec := stdioSpec(t, "slow-modern")
	spec.StartTimeout = 9 * time.Second // the first probe takes a third of it
	s := start(t, testConfig(t), spec)
	if got := call(t, s, toolCall(alice(), "echo", "hi")); got != "hi" {
		t.Error(got)
	}
	if st := status(t, s, alice()); st.Version != mcp.V20260728 {
		t.Errorf("%+v", st)
	}
}

// sdkSpecs are the SDK's server over every transport and era.
func sdkSpecs(t *testing.T) map[string]Spec {
	httpSpec := func(h http.Handler, transport string) Spec {
		web := httptest.NewServer(h)
		t.Cleanup(web.Close)
		return Spec{Name: "s", Transport: transport, URL: web.URL}
	}
	stdio := func(revisions string) Spec {
		return Spec{Name: "s", Transport: Stdio, Command: []string{self(t)}, Env: map[string]string{"UPSTREAM_TEST_PROGRAM": "sdk", "REVISIONS": revisions}}
	}
	server := func(revisions ...string) func(*http.Request) *sdk.Server {
		one := newSDKServer(&sdk.ServerOptions{SupportedProtocolVersions: revisions})
		return func(*http.Request) *sdk.Server { return one }
	}
	legacy := func() func(*http.Request) *sdk.Server {
		return server("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
	}
	return map[string]Spec{
		"stdio 2026":     stdio("2026-07-28"),
		"stdio both":     stdio(""),
		"stdio 2025":     stdio("2025-11-25"),
		"stdio 2024":     stdio("2024-11-05"),
		"http 2026":      httpSpec(sdk.NewStreamableHTTPHandler(server(), &sdk.StreamableHTTPOptions{Stateless: true}), HTTP),
		"http 2025":      httpSpec(sdk.NewStreamableHTTPHandler(legacy(), nil), HTTP),
		"http 2025 json": httpSpec(sdk.NewStreamableHTTPHandler(legacy(), &sdk.StreamableHTTPOptions{JSONResponse: true}), HTTP),
		"http stateless": httpSpec(sdk.NewStreamableHTTPHandler(legacy(), &sdk.StreamableHTTPOptions{Stateless: true}), HTTP),
		"sse 2025":       httpSpec(sdk.NewSSEHandler(legacy(), nil), SSE),
	}
}

// TestSDKServer: a correct server looks the same to the caller in every era and
// transport.
func TestSDKServer(t *testing.T) {
	for name, spec := range sdkSpecs(t) {
		t.Run(name, func(t *testing.T) {
			c := testConfig(t)
			client := &http.Client{Transport: &http.Transport{}}
			c.HTTPClient = func(string, []toolkeep.HostPort) *http.Client { return client }
			spec.Capabilities = []string{CapElicitation}
			s := start(t, c, spec)

			l := &listener{}
			r := toolCall(alice(), "echo", "hello")
			r.Params = mcp.Set(r.Params, []byte(`"tok"`), "_meta", "progressToken")
			r.Peer, r.Session = l, "d1"
			if got := call(t, s, r); got != "hello" {
				t.Error(got)
			}
			wantProgress := name != "http 2025 json" && name != "http stateless"
			if wantProgress && fmt.Sprint(l.heard()) != `[notifications/progress {"progressToken":"tok","progress":1,"total":2}]` {
				t.Errorf("%v", l.heard())
			}
			d, err := s.Definitions(t.Context(), alice(), "s")
			if err != nil || len(d.Tools) != 4 || len(d.Prompts) != 1 || len(d.Resources) != 1 || d.Instructions != "an SDK server" || mcp.Text(d.Server, "name") != "sdk" {
				t.Errorf("%d tools, %d prompts, %d resources, %q, %s: %v", len(d.Tools), len(d.Prompts), len(d.Resources), d.Instructions, d.Server, err)
			}
			if year := name[strings.IndexByte(name, ' ')+1:][:4]; year[0] == '2' && !strings.HasPrefix(d.Version, year) {
				t.Errorf("the revision is %s", d.Version)
			}
			var rpc *mcp.Error
			if _, err := s.Do(t.Context(), toolCall(alice(), "none", "")); !errors.As(err, &rpc) || rpc.Code != mcp.CodeInvalidParams {
				t.Errorf("%v", err)
			}
			if name == "http stateless" { // it has no stream and cannot send requests
				return
			}
			// A server request reaches its caller.
			l.answer = func(_ context.Context, method string, params []byte) ([]byte, error) {
				return []byte(`{"action":"accept","content":{"n":` + string(mcp.Get(params, "message")) + `}}`), nil
			}
			r.Params = toolCall(alice(), "elicit", "who?").Params
			if got := call(t, s, r); got != "acceptmap[n:who?]" {
				t.Error(got)
			}
			testSDKBinding(t, s)
		})
	}
}

// testSDKBinding: notifications of the server reach the binding.
func testSDKBinding(t *testing.T, s *Servers) {
	l := &listener{}
	b, err := s.Bind(t.Context(), &Request{Principal: alice(), Server: "s", Session: "d1", Peer: l})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Do(t.Context(), mcp.MethodSubscribe, []byte(`{"uri":"test://r"}`)); err != nil {
		t.Fatal(err)
	}
	do := func(tool, text string) {
		if _, err := b.Do(t.Context(), mcp.MethodCallTool, toolCall(alice(), tool, text).Params); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "an update comes", func() bool {
		do("touch", "")
		return l.has(`resources/updated {"uri":"test://r"}`)
	})
	i := 0
	eventually(t, "a list change comes", func() bool {
		// The SDK delays a change while others follow.
		if i++; i%50 == 1 {
			do("grow", fmt.Sprint("new", i))
		}
		return l.has(mcp.NotificationToolsChanged)
	})
	eventually(t, "the new tool is in the definitions", func() bool {
		d, err := s.Definitions(t.Context(), alice(), "s")
		return err == nil && len(d.Tools) > 4
	})
	if _, err := b.Do(t.Context(), mcp.MethodUnsubscribe, []byte(`{"uri":"test://r"}`)); err != nil {
		t.Error(err)
	}
}
