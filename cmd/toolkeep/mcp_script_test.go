package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/toolkeep/toolkeep/datadir"
)

// offers is the program `offers FILE`: an MCP server over stdio with the tools in a file of definitions, which it
// reads at each listing. It prints on standard error that it is ready, and the value of TOKEN. With EVENTS set it has
// the resource offers://note, which names the log level and which each call changes.
func offers() {
	fmt.Fprintf(os.Stderr, "offers: ready, TOKEN is %s\n", os.Getenv("TOKEN"))
	s := offering(os.Args[1])
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, "offers:", err)
		os.Exit(1)
	}
}

const offersNote = "offers://note"

func offering(file string) *sdk.Server {
	options := &sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}}}
	events := os.Getenv("EVENTS") != ""
	if events {
		//lint:ignore SA1019 the bridge keeps the log level of revisions that have one
		options.Capabilities.Logging = &sdk.LoggingCapabilities{}
		options.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error { return nil }
		options.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "offers", Version: "1"}, options)
	var mu sync.Mutex
	var level string
	if events {
		s.AddResource(&sdk.Resource{URI: offersNote, Name: "note"}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			mu.Lock()
			defer mu.Unlock()
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: offersNote, Text: "log level " + level}}}, nil
		})
	}
	var names []string
	var last string
	s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
			if events && method == "server/discover" { // log levels are of revisions with sessions
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method"}
			}
			//lint:ignore SA1019 as above
			if p, ok := r.GetParams().(*sdk.SetLoggingLevelParams); ok {
				mu.Lock()
				level = string(p.Level)
				mu.Unlock()
			}
			if method != "tools/list" {
				return next(ctx, method, r)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			var tools []*sdk.Tool
			if err := json.Unmarshal(raw, &tools); err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			if string(raw) == last {
				return next(ctx, method, r)
			}
			last = string(raw)
			s.RemoveTools(names...)
			names = nil
			for _, tool := range tools {
				names = append(names, tool.Name)
				s.AddTool(tool, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					if events {
						if err := s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: offersNote}); err != nil {
							return nil, err
						}
					}
					return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: r.Params.Name + " " + string(r.Params.Arguments)}}}, nil
				})
			}
			return next(ctx, method, r)
		}
	})
	return s
}

// cmdOffering: offering NAME FILE serves the tools of FILE over HTTP at the address in the variable NAME, to
// requests with the header X-Key: sesame.
func cmdOffering(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: offering NAME FILE")
	}
	server := offering(ts.MkAbs(args[1]))
	mcp := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "sesame" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		mcp.ServeHTTP(w, r)
	}))
	ts.Defer(func() {
		h.CloseClientConnections()
		h.Close()
		for s := range server.Sessions() {
			_ = s.Close()
		}
	})
	ts.Setenv(args[0], h.URL)
}

// endServer ends a data directory's server that a script has left running: `toolkeep mcp` starts one in the
// background. It ends only a process that was started for this directory.
func endServer(dir string) {
	info, err := datadir.ReadServerFile(dir)
	if err != nil {
		return
	}
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(info.PID), "cmdline"))
	if err != nil || !strings.Contains(string(line), dir) {
		return
	}
	p, err := os.FindProcess(info.PID)
	if err != nil {
		return
	}
	_ = p.Signal(syscall.SIGTERM)
	for deadline := time.Now().Add(waitLimit); p.Signal(syscall.Signal(0)) == nil && time.Now().Before(deadline); {
		<-time.After(20 * time.Millisecond)
	}
}

// offersPath returns the path of the program.
func offersPath() (string, error) { return exec.LookPath("offers") }
