//go:build linux

package upstream

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// programs are the test servers, by the name in their environment.
var programs map[string]func() int

func init() {
	programs = map[string]func() int{
		"server":               serveBad,
		"sdk":                  serveSDK,
		"sleep":                func() int { return run(func() { waitForever() }) },
		"stubborn":             func() int { return stubborn(func() {}) },
		"stubborn and says so": func() int { return stubborn(func() { fmt.Println("deaf") }) },
		"exit":                 func() int { return 7 },
		"toolkeep":             runToolkeep,
	}
}

func run(f func()) int { f(); return 0 }

// manyProgress is the number of notifications that many-progress sends.
const manyProgress = 20 * maxQueued

// stubborn calls deaf once only SIGKILL can end it.
func stubborn(deaf func()) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	deaf()
	waitForever()
	return 0
}

func waitForever() {
	for {
		time.Sleep(time.Hour)
	}
}

// wire is the server's side of a stdio connection, hand-written so that no library
// hides what is tested.
type wire struct {
	mu  sync.Mutex
	out *bufio.Writer
}

func (w *wire) line(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.out.WriteString(s + "\n")
	_ = w.out.Flush()
}

func (w *wire) send(m *mcp.Message) { w.line(string(m.Bytes())) }

func (w *wire) text(id []byte, text string) {
	w.send(mcp.Reply(id, []byte(`{"content":[{"type":"text","text":`+string(mcp.Quote(text))+`}]}`)))
}

func (w *wire) tell(method, params string) {
	m := &mcp.Message{Method: method}
	if params != "" {
		m.Params = []byte(params)
	}
	w.send(m)
}

// bad is a server that misbehaves by its mode (the whole server) and by the name of the
// called tool (one call).
type bad struct {
	*wire
	mode      string
	asked     map[string]chan *mcp.Message
	mu        sync.Mutex
	memory    string
	pings     int
	lists     int
	discovers int
}

func serveBad() int {
	b := &bad{wire: &wire{out: bufio.NewWriter(os.Stdout)}, mode: os.Getenv("MODE"), asked: make(map[string]chan *mcp.Message)}
	switch b.mode {
	case "flap":
		fmt.Fprintln(os.Stderr, "boom: no such table; the key is", os.Getenv("SECRET"))
		return 3
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "junk-first":
		b.line("Welcome to the server!")
		b.line(`{"not":"a message"}`)
	case "junk-for-ever":
		for {
			b.line("la la la")
		}
	case "mute":
		waitForever()
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		data, err := in.ReadBytes('\n')
		if err != nil {
			if b.mode == "stubborn" {
				waitForever()
			}
			return 0
		}
		m, err := mcp.Parse(bytes.TrimSpace(data), canon.Limits{})
		if err != nil {
			fmt.Fprintln(os.Stderr, "bad line:", err)
			continue
		}
		if code := b.take(m); code >= 0 {
			return code
		}
	}
}

func (b *bad) take(m *mcp.Message) (exit int) {
	switch {
	case m.IsResponse():
		b.mu.Lock()
		ch := b.asked[string(m.ID)]
		b.mu.Unlock()
		if ch != nil {
			ch <- m
		}
		return -1
	case m.Method == mcp.MethodDiscover:
		return b.discover(m)
	case m.Method == mcp.MethodInitialize:
		return b.initialize(m)
	case m.Method == mcp.MethodPing:
		b.pings++
		if b.mode != "deaf" {
			b.send(mcp.Reply(m.ID, nil))
		}
	case m.Method == mcp.MethodListTools:
		b.listTools(m)
	case m.Method == mcp.MethodCallTool:
		name := mcp.Text(m.Params, "name")
		switch name {
		case "die":
			return 9
		case "close-stdin":
			_ = syscall.Close(0)
			b.text(m.ID, strconv.Itoa(os.Getpid()))
			waitForever()
		}
		go b.call(name, m)
	case m.Method == mcp.MethodSubscribe, m.Method == mcp.MethodUnsubscribe, m.Method == mcp.MethodSetLevel:
		b.send(mcp.Reply(m.ID, nil))
		if m.Method == mcp.MethodSubscribe {
			b.tell(mcp.NotificationResourceUpdated, `{"uri":`+string(mcp.Get(m.Params, "uri"))+`}`)
		} else if m.Method == mcp.MethodSetLevel {
			b.tell(mcp.NotificationMessage, `{"level":"info","data":"level `+mcp.Text(m.Params, "level")+`"}`)
		}
	case m.IsRequest() && b.mode == "no-resources":
		b.send(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeInternal, "the database of resources is away")))
	case m.IsRequest() && b.mode == "leaky":
		b.leak(m)
	case m.IsRequest():
		b.send(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeMethodNotFound, "unknown method")))
	case m.Method == mcp.NotificationCancelled:
		fmt.Fprintln(os.Stderr, "cancelled", string(mcp.Get(m.Params, "requestId")))
	case m.Method == mcp.NotificationInitialized:
		switch b.mode {
		case "asks-unasked":
			b.send(&mcp.Message{ID: []byte(`"q1"`), Method: mcp.MethodCreateMessage, Params: []byte(`{}`)})
			b.send(&mcp.Message{ID: []byte(`"q2"`), Method: mcp.MethodElicit, Params: []byte(`{"message":"your password?"}`)})
			b.send(&mcp.Message{ID: []byte(`"q3"`), Method: mcp.MethodListRoots})
			b.send(&mcp.Message{ID: []byte(`1`), Method: "made/up"})
		case "storm":
			for range 3000 {
				b.tell(mcp.NotificationToolsChanged, "")
			}
		}
	}
	return -1
}

func (b *bad) discover(m *mcp.Message) int {
	switch b.mode {
	case "dies-of-discover":
		return 4
	case "ignores-discover":
		return -1
	case "modern", "slow-modern":
		if b.mode == "slow-modern" && b.discovers == 0 {
			b.discovers++
			return -1
		}
		b.send(mcp.Reply(m.ID, []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"instructions":"be kind","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"1"}}}`)))
	default:
		b.send(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeMethodNotFound, "no such method")))
	}
	return -1
}

func (b *bad) initialize(m *mcp.Message) int {
	switch b.mode {
	case "modern", "slow-modern":
		b.send(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeMethodNotFound, "no such method")))
		return -1
	case "never-ready":
		return -1
	case "leaky":
		b.send(mcp.Reply(m.ID, []byte(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{},"resources":{},"logging":{}},`+
			`"serverInfo":{"name":"leaky","version":"1","title":`+b.secret()+`},"instructions":`+b.secret()+`}`)))
		return -1
	case "leaky-start":
		b.send(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeInternal, "no: "+os.Getenv("SECRET"))))
		fmt.Fprintln(os.Stderr, "the word that ended it was", os.Getenv("SECRET"))
		return 3
	case "future":
		b.send(mcp.Reply(m.ID, []byte(`{"protocolVersion":"2031-01-01","capabilities":{},"serverInfo":{"name":"f","version":"1"}}`)))
		return -1
	}
	b.send(mcp.Reply(m.ID, []byte(`{"protocolVersion":`+string(mcp.Get(m.Params, "protocolVersion"))+
		`,"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"bad","version":"1","seen":`+
		string(mcp.Get(m.Params, "capabilities"))+`},"instructions":"hello"}`)))
	return -1
}

// secret is a JSON text with the server's secret and another word.
func (b *bad) secret() string { return string(mcp.Quote("the word is " + os.Getenv("SECRET"))) }

// leak answers messages other than calls with the secret.
func (b *bad) leak(m *mcp.Message) {
	switch text := b.secret(); m.Method {
	case mcp.MethodListPrompts:
		b.send(mcp.Reply(m.ID, []byte(`{"prompts":[{"name":"p","description":`+text+`}]}`)))
	case mcp.MethodListResources:
		b.send(mcp.Reply(m.ID, []byte(`{"resources":[{"name":"r","uri":"test://r","description":`+text+`}]}`)))
	case mcp.MethodListResourceTemplates:
		b.send(mcp.Reply(m.ID, []byte(`{"resourceTemplates":[]}`)))
	case mcp.MethodReadResource:
		b.send(mcp.Reply(m.ID, []byte(`{"contents":[{"uri":"test://r","text":`+text+`}]}`)))
	default:
		b.send(mcp.Refuse(m.ID, &mcp.Error{Code: mcp.CodeInvalidParams, Message: "the word is " + os.Getenv("SECRET"), Data: []byte(`[` + text + `]`)}))
	}
}

func (b *bad) listTools(m *mcp.Message) {
	b.mu.Lock()
	b.lists++
	n := b.lists
	b.mu.Unlock()
	cursor := mcp.Text(m.Params, "cursor")
	switch b.mode {
	case "many":
		var list strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&list, `,{"name":"t%d","inputSchema":{"type":"object"}}`, i)
		}
		b.send(mcp.Reply(m.ID, []byte(`{"tools":[`+list.String()[1:]+`]}`)))
	case "leaky-tools":
		secret := string(mcp.Quote(os.Getenv("SECRET")))
		b.send(mcp.Reply(m.ID, []byte(`{"tools":[{"name":"says","description":`+b.secret()+`,"inputSchema":{"type":"object","properties":{"q":{"type":"string","description":`+b.secret()+`}}}},`+
			`{"name":"plain","description":"the word","inputSchema":{"type":"object"}},`+
			`{"name":"default","inputSchema":{"type":"object","properties":{"q":{"default":`+secret+`}}}},`+
			`{"name":"member","inputSchema":{"type":"object","properties":{`+secret+`:{}}}}]}`)))
	case "circle":
		next := map[string]string{"": "a", "a": "b", "b": "a"}[cursor]
		b.send(mcp.Reply(m.ID, []byte(`{"tools":[{"name":"x","inputSchema":{"type":"object"}}],"nextCursor":"`+next+`"}`)))
	case "endless":
		i, _ := strconv.Atoi(cursor)
		b.send(mcp.Reply(m.ID, []byte(`{"tools":[],"nextCursor":"`+strconv.Itoa(i+1)+`"}`)))
	case "once":
		if n > 1 {
			b.send(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeInternal, "out of order")))
			return
		}
		fallthrough
	default:
		b.send(mcp.Reply(m.ID, []byte(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"call-`+strconv.Itoa(n)+`","inputSchema":{"type":"object"}}]}`)))
	}
}

// ask sends the client a request and waits for its response.
func (b *bad) ask(id, method, params string) *mcp.Message {
	ch := make(chan *mcp.Message, 1)
	b.mu.Lock()
	b.asked[id] = ch
	b.mu.Unlock()
	b.send(&mcp.Message{ID: []byte(id), Method: method, Params: []byte(params)})
	return <-ch
}

func (b *bad) call(name string, m *mcp.Message) {
	arg := mcp.Text(m.Params, "arguments", "text")
	token := string(mcp.Get(m.Params, "_meta", "progressToken"))
	switch name {
	case "echo":
		b.text(m.ID, arg)
	case "params":
		b.text(m.ID, string(m.Params))
	case "env":
		b.text(m.ID, strings.Join(os.Environ(), "\n"))
	case "pid":
		b.text(m.ID, strconv.Itoa(os.Getpid()))
	case "remember":
		b.mu.Lock()
		old := b.memory
		b.memory = arg
		b.mu.Unlock()
		b.text(m.ID, old)
	case "hang":
		fmt.Fprintln(os.Stderr, "hanging", arg)
	case "exit-later":
		b.text(m.ID, "ok")
		os.Exit(5)
	case "twice":
		b.text(m.ID, "first")
		b.text(m.ID, "second")
	case "other-id":
		b.text([]byte(`99999`), "wrong")
		b.text([]byte(`"`+string(m.ID)+`"`), "wrong as a string")
		b.text([]byte(`-1`), "wrong")
		b.text(m.ID, "right")
	case "broken":
		b.line(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[],"content":[]}}`)
	case "lost-id":
		b.text([]byte(`99999`), "wrong")
	case "junk":
		b.line("debug: calling")
		b.line(`[1,2`)
		b.line(`{"jsonrpc":"2.0","id":` + string(m.ID) + `}`)
		b.text(m.ID, "ok")
	case "big":
		n, _ := strconv.Atoi(arg)
		b.text(m.ID, strings.Repeat("x", n))
	case "flood":
		long := strings.Repeat("e", 1000)
		for range 20_000 {
			fmt.Fprintln(os.Stderr, long)
		}
		b.text(m.ID, "ok")
	case "secret":
		fmt.Fprintln(os.Stderr, "my key is", os.Getenv("SECRET"))
		b.text(m.ID, "ok")
	case "progress":
		for i := 1; i <= 5; i++ {
			b.tell(mcp.NotificationProgress, `{"progressToken":`+token+`,"progress":`+strconv.Itoa(i)+`,"total":5}`)
		}
		b.tell(mcp.NotificationProgress, `{"progressToken":777,"progress":1}`)
		b.text(m.ID, "ok")
		b.tell(mcp.NotificationProgress, `{"progressToken":`+token+`,"progress":6,"total":5}`)
	case "slow-progress":
		for i := 1; i <= 6; i++ {
			time.Sleep(400 * time.Millisecond)
			b.tell(mcp.NotificationProgress, `{"progressToken":`+token+`,"progress":`+strconv.Itoa(i)+`}`)
		}
		b.text(m.ID, "ok")
	case "many-progress":
		for i := 1; i <= manyProgress; i++ {
			b.tell(mcp.NotificationProgress, `{"progressToken":`+token+`,"progress":`+strconv.Itoa(i)+`}`)
		}
		b.text(m.ID, "ok")
	case "log":
		b.tell(mcp.NotificationMessage, `{"level":"info","data":"working on `+arg+`"}`)
		b.text(m.ID, "ok")
	case "elicit":
		a := b.ask(`"e-`+arg+`"`, mcp.MethodElicit, `{"message":`+string(mcp.Quote(arg))+`}`)
		if a.Err != nil {
			b.text(m.ID, a.Err.Error())
			return
		}
		b.text(m.ID, string(a.Result))
	case "leak": // in every way but the last, which returns the response to the request
		text := b.secret()
		fmt.Fprintln(os.Stderr, text)
		b.tell(mcp.NotificationMessage, `{"level":"info","data":`+text+`}`)
		b.tell(mcp.NotificationProgress, `{"progressToken":`+token+`,"progress":1,"message":`+text+`}`)
		a := b.ask(`"l-`+string(m.ID)+`"`, mcp.MethodElicit, `{"message":`+text+`}`)
		b.text(m.ID, "the word is "+os.Getenv("SECRET")+": "+string(a.Bytes()))
	case "roots":
		a := b.ask(`"r"`, mcp.MethodListRoots, `{}`)
		b.text(m.ID, string(a.Bytes()))
	case "fork":
		b.text(m.ID, strings.Join(forkTree(arg), " "))
	case "close-stdout":
		_ = os.Stdout.Close()
	case "not-an-object":
		b.line(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":[1]}`)
	case "confirm": // modern: a request in its result
		if mcp.Get(m.Params, "inputResponses") == nil {
			b.send(mcp.Reply(m.ID, []byte(`{"resultType":"input_required","requestState":"s1","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"sure?"}}}}`)))
			return
		}
		b.text(m.ID, mcp.Text(m.Params, "requestState")+" "+string(mcp.Get(m.Params, "inputResponses")))
	case "confirm-for-ever":
		b.send(mcp.Reply(m.ID, []byte(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"sure?"}}}}`)))
	default:
		b.send(mcp.Refuse(m.ID, &mcp.Error{Code: -32602, Message: "unknown tool", Data: []byte(`{"tool":"` + name + `"}`)}))
	}
}

// forkTree starts grandchildren that outlive their parents: one in the group, one in
// its own session whose parent exits at once; both ignore SIGTERM.
func forkTree(kind string) []string {
	self, _ := os.Executable()
	var pids []string
	for _, setsid := range []bool{false, true} {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "UPSTREAM_TEST_PROGRAM=stubborn")
		if kind == "gentle" {
			cmd.Env = append(os.Environ(), "UPSTREAM_TEST_PROGRAM=sleep")
		}
		// They keep stdin, stdout and stderr open, like careless daemons.
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
		if cmd.Start() == nil {
			pids = append(pids, strconv.Itoa(cmd.Process.Pid))
		}
	}
	return pids
}

// serveSDK is a server of the official SDK, which supports both eras.
func serveSDK() int {
	var o sdk.ServerOptions
	if v := os.Getenv("REVISIONS"); v != "" {
		o.SupportedProtocolVersions = strings.Split(v, ",")
	}
	if err := newSDKServer(&o).Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

type echoArgs struct {
	Text string `json:"text"`
}

func newSDKServer(o *sdk.ServerOptions) *sdk.Server {
	o.Instructions = "an SDK server"
	o.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error { return nil }
	o.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
	s := sdk.NewServer(&sdk.Implementation{Name: "sdk", Version: "1"}, o)
	sdk.AddTool(s, &sdk.Tool{Name: "echo", Description: "Gives back what it gets"}, func(ctx context.Context, r *sdk.CallToolRequest, a echoArgs) (*sdk.CallToolResult, any, error) {
		if t := r.Params.GetProgressToken(); t != nil {
			_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: t, Progress: 1, Total: 2})
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: a.Text}}}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "elicit", Description: "Asks its caller"}, func(ctx context.Context, r *sdk.CallToolRequest, a echoArgs) (*sdk.CallToolResult, any, error) {
		if len(r.Params.InputResponses) == 0 {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"name": &sdk.ElicitParams{Message: a.Text, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "string"}}}}}}, nil, nil
		}
		res, _ := r.Params.InputResponses["name"].(*sdk.ElicitResult)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(res.Action, res.Content)}}}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "grow", Description: "Adds a tool"}, func(ctx context.Context, r *sdk.CallToolRequest, a echoArgs) (*sdk.CallToolResult, any, error) {
		s.AddTool(&sdk.Tool{Name: a.Text, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
		return &sdk.CallToolResult{}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "touch", Description: "Changes the resource"}, func(ctx context.Context, r *sdk.CallToolRequest, a echoArgs) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{}, nil, s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: "test://r"})
	})
	s.AddResource(&sdk.Resource{Name: "r", URI: "test://r"}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "test://r", Text: "hi"}}}, nil
	})
	s.AddPrompt(&sdk.Prompt{Name: "p"}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{}, nil
	})
	return s
}
