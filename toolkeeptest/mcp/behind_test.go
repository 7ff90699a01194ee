//lint:file-ignore SA1019 roots and sampling are deprecated in 2026-07-28 and in use until then

package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// The revisions that the clients in front speak.
var revisions = []string{"2025-11-25", "2026-07-28"}

// reference is how the reference servers are run. mark stands in the command
// lines of their processes, so that they can be found.
func reference(dir, mark, name string, args ...string) map[string]any {
	index := filepath.Join(modules(dir), "@modelcontextprotocol", "server-"+name, "dist", "index.js")
	return map[string]any{"transport": "stdio", "command": append([]string{nodeJS(dir), "--title=" + mark, index}, args...)}
}

// running counts the processes whose command line has the mark, the reapers of
// servers included.
func running(t *testing.T, mark string) (n int) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if line, err := os.ReadFile(p); err == nil && strings.Contains(string(line), mark) {
			n++
		}
	}
	return n
}

func marked(t *testing.T) string {
	return "tk-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(t.Name())
}

// connect opens a session of the SDK's Go client.
func connect(t *testing.T, k *toolkeeptest.Toolkeep, view, revision, key string, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	if o == nil {
		o = &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}}
	}
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: k.URL() + view, HTTPClient: &http.Client{Transport: bearer(key)}},
		&sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("%s: %v", view, err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if got := s.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("revision %s was agreed on, not %s", got, revision)
	}
	return s
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// called calls a tool and wants a result.
func called(t *testing.T, s *sdk.ClientSession, name string, arguments map[string]any) *sdk.CallToolResult {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if r.IsError {
		t.Fatalf("%s: %s", name, text(r))
	}
	return r
}

// text joins the texts of a result.
func text(r *sdk.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if block, ok := c.(*sdk.TextContent); ok {
			all = append(all, block.Text)
		}
	}
	return strings.Join(all, "\n")
}

func contains(t *testing.T, what, s, part string) {
	t.Helper()
	if !strings.Contains(s, part) {
		t.Errorf("%s: %q is not in %.2000s", what, part, s)
	}
}

// TestReferenceServers puts the four reference servers behind, programs of
// Node.js, and uses them through the combined view and through one of one server.
func TestReferenceServers(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	mark := marked(t)
	files, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	note := filepath.Join(files, "note.txt")
	if err := os.WriteFile(note, []byte("water the plants\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := start(t)
	least := map[string]int{"everything": 12, "memory": 9, "filesystem": 11, "sequential-thinking": 1}
	for name, spec := range map[string]map[string]any{
		"everything":          reference(dir, mark, "everything"),
		"memory":              reference(dir, mark, "memory"),
		"filesystem":          reference(dir, mark, "filesystem", files),
		"sequential-thinking": reference(dir, mark, "sequential-thinking"),
	} {
		if name == "memory" {
			spec["env"] = map[string]string{"MEMORY_FILE_PATH": filepath.Join(files, "memory.jsonl")}
		}
		if plan := put(t, k, name, spec); len(plan.Tools) < least[name] {
			t.Errorf("%s has %d tools, want %d or more", name, len(plan.Tools), least[name])
		}
	}
	key := k.Key("default", "agent", "agent")
	for i, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			t.Run("tools", func(t *testing.T) { useTools(t, connect(t, k, "/mcp/all", revision, key, nil), least, note) })
			t.Run("combined", func(t *testing.T) {
				useOffers(t, connect(t, k, "/mcp/all", revision, key, nil), "toolkeep+everything:", "everything__")
			})
			t.Run("relay", func(t *testing.T) {
				s := connect(t, k, "/mcp/servers/everything", revision, key, nil)
				if got := s.InitializeResult().ServerInfo; got.Name != "mcp-servers/everything" || got.Title != "Everything Reference Server" {
					t.Errorf("the server is shown as %+v", got)
				}
				useOffers(t, s, "", "")
				if got := text(called(t, s, "echo", map[string]any{"message": "hello"})); got != "Echo: hello" {
					t.Error(got)
				}
			})
			t.Run("progress", func(t *testing.T) { watchProgress(t, k, revision, key) })
			t.Run("cancelled", func(t *testing.T) { cancelCall(t, k, revision, key, i+1) })
		})
	}
	seeServers(t, k, least)
	if n := running(t, mark); n < 4 {
		t.Errorf("%d processes of the servers are running before the end", n)
	}
	k.Close()
	if n := running(t, mark); n > 0 {
		t.Errorf("%d processes are left after the end", n)
	}
}

func useTools(t *testing.T, s *sdk.ClientSession, least map[string]int, note string) {
	count := map[string]int{}
	var annotated *sdk.Tool
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		server, _, _ := strings.Cut(tool.Name, "__")
		count[server]++
		if tool.Name == "everything__get-structured-content" {
			annotated = tool
		}
	}
	for name, n := range least {
		if count[name] < n {
			t.Errorf("%d tools of %s are listed, want %d or more", count[name], name, n)
		}
	}
	if annotated == nil || annotated.Title != "Get Structured Content Tool" || !annotated.Annotations.ReadOnlyHint || annotated.OutputSchema == nil {
		t.Errorf("title, annotations or output schema are lost: %+v", annotated)
	}

	contains(t, "echo", text(called(t, s, "everything__echo", map[string]any{"message": "grüße"})), "Echo: grüße")
	contains(t, "sum", text(called(t, s, "everything__get-sum", map[string]any{"a": 2, "b": 40.5})), "42.5")
	r := called(t, s, "everything__get-structured-content", map[string]any{"location": "Chicago"})
	structured, err := json.Marshal(r.StructuredContent)
	if err != nil || string(structured) != `{"conditions":"Light rain / drizzle","humidity":82,"temperature":36}` {
		t.Errorf("structured content: %s %v", structured, err)
	}
	r = called(t, s, "everything__get-tiny-image", nil)
	images := 0
	for _, c := range r.Content {
		if image, ok := c.(*sdk.ImageContent); ok && image.MIMEType == "image/png" && strings.HasPrefix(string(image.Data), "\x89PNG") {
			images++
		}
	}
	if images != 1 {
		t.Errorf("%d images among %d blocks", images, len(r.Content))
	}

	plant := "Fern of " + s.InitializeResult().ProtocolVersion
	contains(t, "created", text(called(t, s, "memory__create_entities", remember(plant))), plant)
	contains(t, "graph", text(called(t, s, "memory__read_graph", nil)), plant)
	contains(t, "file", text(called(t, s, "filesystem__read_text_file", map[string]any{"path": note})), "water the plants")
	contains(t, "thinking", text(called(t, s, "sequential-thinking__sequentialthinking",
		map[string]any{"thought": "first", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": false})), `"thoughtNumber": 1`)

	refused, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "filesystem__read_text_file", Arguments: map[string]any{"path": "/etc/hostname"}})
	if err != nil || !refused.IsError {
		t.Errorf("a file outside was read: %v %v", refused, err)
	} else {
		contains(t, "refused", text(refused), "denied")
	}
}

// remember are the arguments of create_entities.
func remember(name string) map[string]any {
	return map[string]any{"entities": []any{map[string]any{"name": name, "entityType": "plant", "observations": []any{"likes shade"}}}}
}

// useOffers lists and reads resources and prompts, whose addresses and names have
// the prefixes of the view.
func useOffers(t *testing.T, s *sdk.ClientSession, address, name string) {
	resources := map[string]*sdk.Resource{}
	for r, err := range s.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		resources[r.URI] = r
	}
	const document = "demo://resource/static/document/features.md"
	if r := resources[address+document]; r == nil || r.MIMEType != "text/markdown" {
		t.Errorf("%s is missing among %d resources", address+document, len(resources))
	}
	read, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: address + document})
	if err != nil {
		t.Fatal(err)
	}
	if c := read.Contents; len(c) != 1 || c[0].URI != address+document || len(c[0].Text) < 100 {
		t.Errorf("%+v", c)
	}
	templates := 0
	for r, err := range s.ResourceTemplates(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(r.URITemplate, address+"demo://resource/dynamic/") {
			t.Error(r.URITemplate)
		}
		templates++
	}
	if templates != 2 {
		t.Errorf("%d templates", templates)
	}
	if read, err = s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: address + "demo://resource/dynamic/blob/7"}); err != nil || len(read.Contents) != 1 || len(read.Contents[0].Blob) == 0 {
		t.Errorf("%+v %v", read, err)
	}
	if _, err = s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: address + "demo://nothing"}); err == nil {
		t.Error("a resource was read that is not there")
	}

	prompts := map[string]*sdk.Prompt{}
	for p, err := range s.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		prompts[p.Name] = p
	}
	if p := prompts[name+"args-prompt"]; len(prompts) != 4 || p == nil || p.Title != "Arguments Prompt" || len(p.Arguments) != 2 {
		t.Errorf("prompts: %v", prompts)
	}
	got, err := s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: name + "args-prompt", Arguments: map[string]string{"city": "Oslo"}})
	if err != nil || len(got.Messages) != 1 {
		t.Fatalf("%+v %v", got, err)
	}
	contains(t, "prompt", got.Messages[0].Content.(*sdk.TextContent).Text, "Oslo")
	done, err := s.Complete(t.Context(), &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: name + "completable-prompt"},
		Argument: sdk.CompleteParamsArgument{Name: "department", Value: "S"}})
	if err != nil || strings.Join(done.Completion.Values, " ") != "Sales Support" {
		t.Errorf("%+v %v", done, err)
	}
}

const longRunning = "trigger-long-running-operation"

// watching is a client that sees progress.
func watching(seen chan<- *sdk.ProgressNotificationParams) *sdk.ClientOptions {
	return &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { seen <- r.Params }}
}

func longCall(seconds float64, steps int) *sdk.CallToolParams {
	p := &sdk.CallToolParams{Name: longRunning, Arguments: map[string]any{"duration": seconds, "steps": steps}}
	p.SetProgressToken("token-1")
	return p
}

func watchProgress(t *testing.T, k *toolkeeptest.Toolkeep, revision, key string) {
	seen := make(chan *sdk.ProgressNotificationParams, 100)
	s := connect(t, k, "/mcp/servers/everything", revision, key, watching(seen))
	r, err := s.CallTool(t.Context(), longCall(0.4, 4))
	if err != nil || r.IsError {
		t.Fatalf("%v %v", r, err)
	}
	contains(t, "long", text(r), "Steps: 4")
	last := 0.0
	for len(seen) > 0 {
		p := <-seen
		if p.ProgressToken != "token-1" || p.Progress <= last || p.Total != 4 {
			t.Errorf("%+v after %g", p, last)
		}
		last = p.Progress
	}
	if last == 0 || last > 4 {
		t.Errorf("the last progress was %g", last)
	}
}

// cancelCall gives a call up in its middle. The server knows no cancellation and
// goes on, which must not concern anybody else.
func cancelCall(t *testing.T, k *toolkeeptest.Toolkeep, revision, key string, cancelled int) {
	seen := make(chan *sdk.ProgressNotificationParams, 100)
	s := connect(t, k, "/mcp/servers/everything", revision, key, watching(seen))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := s.CallTool(ctx, longCall(20, 200))
		ended <- err
	}()
	select {
	case <-seen:
	case err := <-ended:
		t.Fatalf("the call ended before it was given up: %v", err)
	case <-time.After(patience):
		t.Fatal("no progress was seen")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	within(t, "the record says that the call was cancelled", func() bool {
		return recorded(t, k, "tool_id=everything."+longRunning+"&state=cancelled") == cancelled
	})
	if got := text(called(t, s, "echo", map[string]any{"message": "still here"})); got != "Echo: still here" {
		t.Error(got)
	}
}

// recorded counts the calls of a query.
func recorded(t *testing.T, k *toolkeeptest.Toolkeep, query string) int {
	t.Helper()
	status, body := k.Do("GET", "/api/v1/invocations?"+query, "")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	var list struct {
		Count int `json:"total_count"`
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	return list.Count
}

// seeServers looks at what the list of servers says.
func seeServers(t *testing.T, k *toolkeeptest.Toolkeep, least map[string]int) {
	t.Helper()
	status, body := k.Do("GET", "/api/v1/servers", "")
	var list struct {
		Servers []struct {
			Name, State   string
			PID           int
			RSS           int64 `json:"rss_bytes"`
			Tools, Held   int
			LastError     string `json:"last_error"`
			Sessions      int
			Restarts      int
			Pending       []string
			TransportName string `json:"transport"`
		}
	}
	if err := json.Unmarshal([]byte(body), &list); status != http.StatusOK || err != nil {
		t.Fatalf("%d %s %v", status, body, err)
	}
	if len(list.Servers) != len(least) {
		t.Errorf("%d servers", len(list.Servers))
	}
	for _, s := range list.Servers {
		if s.State != "ready" || s.PID == 0 || s.RSS < 10<<20 || s.Tools < least[s.Name] || s.Held > 0 || len(s.Pending) > 0 || s.LastError != "" || s.TransportName != "stdio" || s.Sessions == 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestQuestions lets a server ask its caller for a completion, for an answer and for
// roots, while two agents use it at the same time.
func TestQuestions(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	k := start(t)
	spec := reference(dir, marked(t), "everything")
	spec["capabilities"] = []string{"sampling", "elicitation", "roots"}
	put(t, k, "everything", spec)
	for _, revision := range revisions {
		for _, who := range []string{"ada", "bob"} {
			t.Run(revision+"/"+who, func(t *testing.T) {
				t.Parallel()
				c := sdk.NewClient(&sdk.Implementation{Name: who, Version: "1"}, &sdk.ClientOptions{
					CreateMessageHandler: func(_ context.Context, r *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
						return &sdk.CreateMessageResult{Role: "assistant", Model: "model-of-" + who, Content: &sdk.TextContent{Text: who + " heard: " + r.Params.Messages[0].Content.(*sdk.TextContent).Text}}, nil
					},
					ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
						return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"name": who, "check": true}}, nil
					},
				})
				c.AddRoots(&sdk.Root{URI: "file:///home/" + who, Name: "home of " + who})
				s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: k.URL() + "/mcp/servers/everything",
					HTTPClient: &http.Client{Transport: bearer(k.Key("default", who+revision, "agent"))}}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for range 3 {
					contains(t, "sampled", text(called(t, s, "trigger-sampling-request", map[string]any{"prompt": "say hello", "maxTokens": 10})), who+" heard: Resource trigger-sampling-request context: say hello")
					contains(t, "elicited", text(called(t, s, "trigger-elicitation-request", nil)), "Name: "+who)
					contains(t, "roots", text(called(t, s, "get-roots-list", nil)), "file:///home/"+who)
				}
			})
		}
	}
}

// TestTenantsApart lets agents of two tenants use one server that remembers. What
// it keeps in its home is the tenant's own.
func TestTenantsApart(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	mark := marked(t)
	k := start(t)
	spec := reference(dir, mark, "memory")
	spec["command"] = append([]string{"/bin/sh", "-c", `MEMORY_FILE_PATH="$HOME/memory.jsonl" exec "$0" "$@"`}, spec["command"].([]string)...)
	put(t, k, "memory?shared=true", spec)
	write := func(tenant, name string) {
		called(t, connect(t, k, "/mcp/servers/memory", "2025-11-25", k.Key(tenant, "writer", "agent"), nil), "create_entities", remember(name))
	}
	read := func(tenant string) string {
		return text(called(t, connect(t, k, "/mcp/all", "2026-07-28", k.Key(tenant, "reader", "agent"), nil), "memory__read_graph", nil))
	}
	write("blue", "Cornflower")
	write("red", "Poppy")
	for tenant, names := range map[string][2]string{"blue": {"Cornflower", "Poppy"}, "red": {"Poppy", "Cornflower"}, "green": {`"entities": []`, "likes shade"}} {
		got := read(tenant)
		contains(t, tenant, got, names[0])
		if strings.Contains(got, names[1]) {
			t.Errorf("%s reads what another tenant wrote: %s", tenant, got)
		}
	}
	k.Close()
	if n := running(t, mark); n > 0 {
		t.Errorf("%d processes are left after the end", n)
	}
}
