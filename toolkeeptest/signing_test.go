package toolkeeptest_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// sendSigned sends a signed request of a key over HTTP; change alters it after it was signed.
func sendSigned(t *testing.T, url, path, key, secret, body string, change func(*http.Request), header ...string) (int, toolkeep.Code, *http.Request) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if secret != "" {
		if err := signing.Sign(&signing.Request{Method: r.Method, Target: path, Header: func(name string) []string { return r.Header[http.CanonicalHeaderKey(name)] }},
			[]byte(secret), []byte(body), time.Now(), r.Header.Set); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(r)
	}
	status, code := sendAgain(t, r)
	return status, code, r
}

// once leaves no connections open, which the server's end would wait for.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// sendAgain sends a request as it is; the code is that of a problem document.
func sendAgain(t *testing.T, r *http.Request) (int, toolkeep.Code) {
	t.Helper()
	again := r.Clone(t.Context())
	if r.GetBody != nil {
		again.Body, _ = r.GetBody()
	}
	resp, err := once.Do(again)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Code toolkeep.Code }
	if resp.StatusCode >= 400 {
		_ = json.Unmarshal(raw, &p)
	}
	return resp.StatusCode, p.Code
}

// A key that requires signatures comes in with signed requests alone, over each face; what was
// altered or sent before is refused, each with its code, and the log helps no forger.
func TestSignedRequests(t *testing.T) {
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"log.level": "DEBUG",
		"access.agent_failures": "-1"}})
	code, answer := k.Do("POST", "/api/v1/keys", `{"subject":"runtime","roles":["agent"],"require_signature":true}`)
	var made struct {
		Secret string
		Signs  string `json:"signing_secret"`
	}
	if err := json.Unmarshal([]byte(answer), &made); err != nil || code != http.StatusCreated || made.Signs == "" {
		t.Fatalf("%d %s", code, answer)
	}
	bodies := map[string]string{
		"/api/v1/tools/invoke": `{"tool_id":"std.echo","parameters":{"a":1}}`,
		"/mcp":                 `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
	}
	var used []string
	for path, body := range bodies {
		t.Run(path, func(t *testing.T) {
			status, code, sent := sendSigned(t, k.URL(), path, made.Secret, made.Signs, body, nil)
			if status >= 300 {
				t.Fatalf("signed: %d %s", status, code)
			}
			used = append(used, sent.Header.Get(signing.HeaderSignature))
			if _, code := sendAgain(t, sent); code != toolkeep.ReplayDetected {
				t.Errorf("again: %s", code)
			}
			other := strings.Replace(body, "1", "2", 1)
			for name, x := range map[string]struct {
				change func(*http.Request)
				want   toolkeep.Code
			}{
				"another body": {func(r *http.Request) {
					r.Body, r.GetBody = io.NopCloser(strings.NewReader(other)), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(other)), nil }
				}, toolkeep.BodyAltered},
				"another query":     {func(r *http.Request) { r.URL.RawQuery = "a=1" }, toolkeep.SignatureInvalid},
				"another's user":    {func(r *http.Request) { r.Header.Set("X-User-Id", "root") }, toolkeep.SignatureInvalid},
				"a former time":     {func(r *http.Request) { r.Header.Set(signing.HeaderTimestamp, "1767225600") }, toolkeep.TimestampInvalid},
				"no signature":      {func(r *http.Request) { r.Header.Del(signing.HeaderSignature) }, toolkeep.SignatureInvalid},
				"half of a request": {func(r *http.Request) { r.Header.Del(signing.HeaderNonce) }, toolkeep.SignatureInvalid},
			} {
				if status, code, _ := sendSigned(t, k.URL(), path, made.Secret, made.Signs, body, x.change); code != x.want {
					t.Errorf("%s: %d %s, want %s", name, status, code, x.want)
				}
			}
			if status, code, _ := sendSigned(t, k.URL(), path, made.Secret, "", body, nil); code != toolkeep.SignatureInvalid {
				t.Errorf("unsigned: %d %s", status, code)
			}
		})
	}
	t.Run("grpc", func(t *testing.T) {
		for _, secret := range []string{made.Signs, ""} {
			c, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{Key: made.Secret, SigningSecret: secret})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			call := &toolkeep.Call{Tool: "std.echo", Arguments: []byte(`{"a":1,"b":{"c":[1,2]},"d":"x"}`)}
			_, invoked := c.Invoke(t.Context(), nil, call)
			call.Caller = silent{}
			_, streamed := c.Invoke(t.Context(), nil, call)
			_, _, listed := c.List(t.Context(), nil)
			for name, err := range map[string]error{"a call": invoked, "a streamed call": streamed, "a list": listed} {
				if secret != "" && err != nil {
					t.Errorf("%s, signed: %v", name, err)
				}
				if secret == "" && !toolkeep.IsCode(err, toolkeep.SignatureInvalid) {
					t.Errorf("%s, unsigned: %v", name, err)
				}
			}
		}
		c, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		msg := &l03v1.ListToolsRequest{}
		raw, err := proto.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+made.Secret)
		md, _ := metadata.FromOutgoingContext(ctx)
		if err := signing.Sign(&signing.Request{Method: "POST", Target: l03v1.ToolRegistry_ListTools_FullMethodName, Header: md.Get}, []byte(made.Signs), raw, time.Now(),
			func(name, value string) { ctx = metadata.AppendToOutgoingContext(ctx, name, value) }); err != nil {
			t.Fatal(err)
		}
		tools := l03v1.NewToolRegistryClient(c.Conn())
		if _, err := tools.ListTools(ctx, &l03v1.ListToolsRequest{PageSize: 7}); rpcCode(err) != toolkeep.BodyAltered {
			t.Errorf("another message: %v", err)
		}
		if _, err := tools.ListTools(ctx, msg); err != nil {
			t.Errorf("signed by hand: %v", err)
		}
		if _, err := tools.ListTools(ctx, msg); rpcCode(err) != toolkeep.ReplayDetected {
			t.Errorf("again: %v", err)
		}
	})
	k.Close()
	for _, helps := range append(used, made.Signs, made.Secret) {
		if strings.Contains(k.Log(), helps) {
			t.Error("the log helps a forger")
		}
	}
}

type silent struct{}

func (silent) Progress(toolkeep.Progress) {}

// A proxy with the runtime's secret names callers, with the roles and tenants that it may give; its
// user is the person that the caller acts for.
func TestTrustedProxy(t *testing.T) {
	const secret = "the runtime's secret, longer than 32 bytes"
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"proxy.keys": "env://TOOLKEEP_SECRET_RUNTIME", "proxy.roles": "agent",
		"http.trusted_proxies": "127.0.0.1", "drain.grace": "0s"}, Environ: []string{"TOOLKEEP_SECRET_RUNTIME=" + secret}})
	t.Setenv("TOOLKEEP_SECRET_RUNTIME", secret)
	const path, body = "/api/v1/tools/invoke", `{"tool_id":"std.echo","parameters":{"a":1}}`
	for name, x := range map[string]struct {
		key, secret string
		header      []string
		want        toolkeep.Code
	}{
		"a caller":               {"", secret, []string{"X-Caller-Subject", "billing", "X-Caller-Roles", "agent", "X-User-Id", "ann"}, ""},
		"without a role":         {"", secret, []string{"X-Caller-Subject", "billing"}, toolkeep.ToolNotFound},
		"an administrator":       {"", secret, []string{"X-Caller-Subject", "billing", "X-Caller-Roles", "admin"}, toolkeep.Unauthenticated},
		"unsigned":               {"", "", []string{"X-Caller-Subject", "billing", "X-Caller-Roles", "agent"}, toolkeep.SignatureInvalid},
		"with a foreign secret":  {"", "no" + secret, []string{"X-Caller-Subject", "billing", "X-Caller-Roles", "agent"}, toolkeep.SignatureInvalid},
		"beside a key":           {k.AdminKey, secret, []string{"X-Caller-Subject", "billing"}, toolkeep.Unauthenticated},
		"a secret and no caller": {"", secret, nil, toolkeep.Unauthenticated},
	} {
		if status, code, _ := sendSigned(t, k.URL(), path, x.key, x.secret, body, nil, x.header...); code != x.want {
			t.Errorf("%s: %d %s, want %s", name, status, code, x.want)
		}
	}
	code, answer := k.Do("GET", "/api/v1/invocations?agent_id=billing&state=succeeded", "")
	if code != http.StatusOK || !strings.Contains(answer, `"user_id":"ann"`) {
		t.Errorf("%d %s", code, answer)
	}
}

// Calls without right of a hundred agents, past the limit of each: none passes, each has its record,
// agents are locked out, and the calls of others all succeed meanwhile. TestTenThousandForgeries of
// package access makes ten thousand attempts.
func TestHundredAgentsDenied(t *testing.T) {
	k := toolkeeptest.New(t)
	const agents, each = 100, 13
	principal := func(text string) *toolkeep.Principal {
		t.Helper()
		p, err := k.Access().Authenticate(t.Context(), text, "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	other := k.Key("default", "other", "agent")
	texts := make([]string, agents)
	for i := range texts {
		texts[i] = k.Key("default", fmt.Sprint("agent", i), "auditor") // sees all tools, calls none
	}
	codes := map[toolkeep.Code]int{}
	call := func() *toolkeep.Call { return &toolkeep.Call{Tool: "std.echo", Arguments: []byte(`{"a":1}`)} }
	for n := range each {
		for _, text := range texts {
			_, err := k.Pipeline().Invoke(t.Context(), principal(text), call()) // the key itself comes in, whatever was denied
			if err == nil {
				t.Fatal("a call without right passed")
			}
			codes[toolkeep.AsError(err).Code]++
		}
		if res, err := k.Pipeline().Invoke(t.Context(), principal(other), call()); err != nil || res.Error != nil {
			t.Fatalf("the call of another agent at the same address, after %d: %+v %v", n, res, err)
		}
	}
	if codes[toolkeep.PermissionDenied] != agents*10 || codes[toolkeep.AuthFailuresLimited] != agents*(each-10) {
		t.Errorf("%v", codes)
	}
	var list struct {
		Total int `json:"total_count"`
	}
	code, answer := k.Do("GET", "/api/v1/invocations?state=refused&page_size=1", "")
	if err := json.Unmarshal([]byte(answer), &list); err != nil || code != http.StatusOK || list.Total != agents*each {
		t.Errorf("%d records of %d: %s", list.Total, agents*each, answer[:min(len(answer), 300)])
	}
}

// rpcCode is the code in a status.
func rpcCode(err error) toolkeep.Code {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return toolkeep.Code(info.GetMetadata()["code"])
		}
	}
	return ""
}

// A call may carry the signature of Execution IV-008, of the call alone, over REST and gRPC. It is none
// for requests that are no calls, nor with half of the headers of a signed request.
func TestSignedCalls(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	t.Setenv("TOOLKEEP_SECRET_SHARED", secret)
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"signing.keys": "env://TOOLKEEP_SECRET_SHARED", "signing.required": "rest,grpc,mcp",
		"access.agent_failures": "-1"}, Environ: []string{"TOOLKEEP_SECRET_SHARED=" + secret}})
	key := k.Key("default", "agent_456", "agent")
	sign := func(parameters string) (signature, now string) {
		now = strconv.FormatInt(time.Now().Unix(), 10)
		digest := sha256.Sum256([]byte(parameters))
		m := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(m, "L03-HMAC-SHA256\n%s\n7\nstd.echo\nagent_456\n%x", now, digest)
		return hex.EncodeToString(m.Sum(nil)), now
	}
	headers := func(parameters string, more ...string) []string {
		signature, now := sign(parameters)
		return append([]string{"X-Request-Signature", signature, "X-Request-Timestamp", now, "X-Request-Id", "7"}, more...)
	}
	const invoke, call = "/api/v1/tools/invoke", `{"tool_id":"std.echo","parameters":{"b":2,"a":1}}`
	const dry = `{"tool_id":"std.echo","parameters":{"a":3},"dry_run":true}`
	signed := headers(`{"a":1,"b":2}`)
	for _, x := range []struct {
		name, path, body string
		header           []string
		want             toolkeep.Code
	}{
		{"a signed call", invoke, call, signed, ""},
		{"again", invoke, call, signed, toolkeep.ReplayDetected},
		{"with other parameters", invoke, call, headers(`{"a":1}`), toolkeep.SignatureInvalid},
		{"a dry run", invoke, dry, headers(`{"a":3}`), ""},
		{"a dry run with other parameters", invoke, dry, headers(`{"a":4}`), toolkeep.SignatureInvalid},
		{"with a nonce that is empty", invoke, call, headers(`{"a":1,"b":2}`, "X-Request-Nonce", ""), toolkeep.SignatureInvalid},
		{"with a digest that is empty", invoke, call, headers(`{"a":1,"b":2}`, "X-Content-Sha256", ""), toolkeep.SignatureInvalid},
		{"unsigned", invoke, call, nil, toolkeep.SignatureInvalid},
		{"with an empty signature", invoke, call, []string{"X-Request-Signature", ""}, toolkeep.SignatureInvalid},
		{"what is no call", "/api/v1/keys", `{"subject":"x","roles":["agent"]}`, headers(`{}`), toolkeep.SignatureInvalid},
		{"over MCP", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"std_echo","arguments":{"a":1}}}`, headers(`{"a":1}`), toolkeep.SignatureInvalid},
		{"with a capability token that is none", invoke, call, headers(`{"a":1}`, "X-Capability-Token", ""), toolkeep.TokenInvalid},
	} {
		if status, code, _ := sendSigned(t, k.URL(), x.path, key, "", x.body, nil, x.header...); code != x.want || x.want == "" && status != http.StatusOK {
			t.Errorf("%s: %d %s, want %s", x.name, status, code, x.want)
		}
	}
	c, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for parameters, want := range map[string]toolkeep.Code{`{"c":1}`: "", `{"c":2}`: toolkeep.SignatureInvalid} {
		signature, now := sign(`{"c":1}`)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-request-signature", signature, "x-request-timestamp", now, "x-request-id", "7")
		if _, err := c.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.echo", Arguments: []byte(parameters)}); (err == nil) != (want == "") || want != "" && !toolkeep.IsCode(err, want) && !toolkeep.IsCode(err, toolkeep.ReplayDetected) {
			t.Errorf("gRPC %s: %v, want %s", parameters, err, want)
		}
	}
}
