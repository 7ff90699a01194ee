package grpctool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
	"github.com/toolkeep/toolkeep/schema"
)

// TestKinds calls a method of every kind and checks results against their schemas.
func TestKinds(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	for _, tt := range []struct{ tool, args, want string }{
		{"Kinds_Count", `{"to":3}`, `{"complete":true,"messages":[{"n":"1"},{"n":"2"},{"n":"3"}]}`},
		{"Kinds_Count", `{}`, `{"complete":true,"messages":[]}`},
		{"Kinds_Sum", `{"messages":[{"n":9007199254740993},{"n":"1"},{}]}`, `{"n":"9007199254740994"}`},
		{"Kinds_Sum", `{"messages":[]}`, `{"n":"0"}`},
		{"Kinds_Chat", `{"messages":[{"n":5},{"n":-6}]}`, `{"complete":true,"messages":[{"n":"5"},{"n":"-6"}]}`},
		{"Kinds_Day", `{"value":"ab"}`, `"1970-01-03T00:00:00Z"`},
		{"Kinds_Old", `{}`, `{}`},
		{"Legacy_Echo", `{"name":"x","packed":[1,2],"box":{"inside":"y"},"mood":"CALM"}`, `{"box":{"inside":"y"},"mood":"CALM","name":"x","packed":[1,2]}`},
		{"modern_Kinds_Echo", `{"wanted":"","present":"","part":{"text":"y"},"mode":"MODE_B","loose":[1,2]}`, `{"loose":[1,2],"mode":"MODE_B","name":"","part":{"text":"y"},"present":"","wanted":""}`},
	} {
		got, out, err := run(t, e, execution(ts[tt.tool], args(t, tt.args)))
		if err != nil {
			t.Errorf("%s %s: %v (because of %v)", tt.tool, tt.args, err, err.Cause)
			continue
		}
		if got != tt.want {
			t.Errorf("%s %s answers\n%s, want\n%s", tt.tool, tt.args, got, tt.want)
		}
		checkResult(t, ts[tt.tool], out.Value)
		if out.BytesSent < 5 && !strings.Contains(tt.args, "[]") || out.BytesRecv < 5 && !strings.Contains(got, "[]") {
			t.Errorf("%s: %d bytes sent, %d received", tt.tool, out.BytesSent, out.BytesRecv)
		}
	}
	if n := s.Conns(); n != 1 {
		t.Errorf("%d connections for one tenant and target", n)
	}
}

func checkResult(t testing.TB, m *toolkeep.Manifest, v any) {
	t.Helper()
	compiled, err := schema.Compile(m.ResultSchema)
	if err != nil {
		t.Fatal(err)
	}
	if faults := compiled.Validate(t.Context(), v); len(faults) > 0 {
		t.Errorf("%s: the result breaks its schema: %+v", m.ToolID, faults)
	}
}

const everything = `{"aBool":true,"anInt32":-2147483648,"aSint32":-1,"aSfixed32":2147483647,"aUint32":4294967295,"aFixed32":1,
	"anInt64":"9223372036854775807","aSint64":"-9223372036854775808","aSfixed64":"9007199254740993","aUint64":"18446744073709551615","aFixed64":"1",
	"aFloat":1.5,"aDouble":0.1,"aString":"ä\u0001\ud83d\ude00","someBytes":"AP/+","colour":"COLOUR_GREEN","longs":["1","-2"],"texts":["","b"],
	"numbers":[{"n":"1"},{"n":"0"}],"byName":{"":{"n":"7"},"a/b~c":{"n":"0"}},"byLong":{"-9223372036854775808":"x"},"byFlag":{"false":"COLOUR_RED","true":"COLOUR_UNSPECIFIED"},
	"text":"","maybe":0,"self":{"number":{"n":"3"},"any":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.500s"}},
	"at":"0001-01-01T00:00:00Z","within":"-0.000000001s","mask":"user.displayName,photo","struct":{"a":[1,null,{"b":"c"}],"n":1.5},"value":[true,"x"],"list":["",{}],
	"any":{"@type":"type.googleapis.com/acme.kinds.v1.Everything","aBool":true,"any":{"@type":"x/acme.shared.Place","latitude":1.5}},"null":null,
	"wrappedLong":"-5","wrappedText":"","wrappedFlag":false,"wrappedDouble":"Infinity","wrappedBytes":"","anotherName":"n","inner":{"text":"i","kind":"KIND_ONE"},
	"place":{"latitude":-0.5,"longitude":1e-7},"times":["2026-01-31T12:00:00.123Z","9999-12-31T23:59:59.999999999Z"],"values":{"a":null,"b":1},"outdated":1}`

// TestEverything round-trips every type.
func TestEverything(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	m := ts["v1_Kinds_Echo"]
	sent := args(t, everything)
	compiled, err := schema.Compile(m.ParametersSchema)
	if err != nil {
		t.Fatal(err)
	}
	if faults := compiled.Validate(t.Context(), sent); len(faults) > 0 {
		t.Fatalf("the arguments break their schema: %+v", faults)
	}
	_, out, failed := run(t, e, execution(m, sent))
	if failed != nil {
		t.Fatal(failed, failed.Cause)
	}
	checkResult(t, m, out.Value)
	got := out.Value.(map[string]any)
	for name, want := range sent {
		if name == "self" || name == "any" {
			continue
		}
		if a, b := canon.Append(nil, got[name]), canon.Append(nil, want); string(a) != string(b) {
			t.Errorf("%s came back as %s, sent was %s", name, a, b)
		}
	}
	for _, tt := range []struct{ pointer, want string }{
		{"/self/number", `{"n":"3"}`}, {"/self/any", `{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.500s"}`},
		{"/any/@type", `"type.googleapis.com/acme.kinds.v1.Everything"`}, {"/any/any", `{"@type":"x/acme.shared.Place","latitude":1.5,"longitude":0}`},
	} {
		v, _ := canon.Lookup(out.Value, tt.pointer)
		if a := string(canon.Append(nil, v)); a != tt.want {
			t.Errorf("%s is %s, want %s", tt.pointer, a, tt.want)
		}
	}
	// Fields without presence are included, those with presence are not.
	empty, _, failed := run(t, e, execution(m, args(t, `{}`)))
	if failed != nil {
		t.Fatal(failed)
	}
	for _, part := range []string{`"anInt64":"0"`, `"longs":[]`, `"byName":{}`, `"colour":"COLOUR_UNSPECIFIED"`, `"someBytes":""`} {
		if !strings.Contains(empty, part) {
			t.Errorf("the empty message lacks %s: %s", part, empty)
		}
	}
	for _, part := range []string{`"maybe"`, `"text"`, `"at"`, `"wrappedLong"`, `"self"`} {
		if strings.Contains(empty, part+":") {
			t.Errorf("the empty message has %s: %s", part, empty)
		}
	}
}

// TestMisfits: each argument that does not fit is refused with its place.
func TestMisfits(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	for _, tt := range []struct{ args, pointer string }{
		{`{"nope":1}`, "/nope"}, {`{"anInt32":2147483648}`, "/anInt32"}, {`{"anInt32":1.5}`, "/anInt32"}, {`{"aUint32":-1}`, "/aUint32"},
		{`{"anInt64":"9223372036854775808"}`, "/anInt64"}, {`{"aUint64":18446744073709551616}`, "/aUint64"}, {`{"anInt64":1e400}`, "/anInt64"},
		{`{"anInt64":1e9999}`, "/anInt64"}, {`{"aDouble":1e400}`, "/aDouble"}, {`{"aFloat":1e39}`, "/aFloat"}, {`{"aBool":"true"}`, "/aBool"},
		{`{"aString":1}`, "/aString"}, {`{"someBytes":"%"}`, "/someBytes"}, {`{"someBytes":"AA\nAA"}`, "/someBytes"}, {`{"colour":"RED"}`, "/colour"}, {`{"colour":true}`, "/colour"},
		{`{"longs":1}`, "/longs"}, {`{"longs":[1,"x"]}`, "/longs/1"}, {`{"longs":[null]}`, "/longs/0"}, {`{"byLong":{"x":"a"}}`, "/byLong/x"}, {`{"byLong":{"1":"a","1.0":"b"}}`, ""},
		{`{"byFlag":{"yes":"COLOUR_RED"}}`, "/byFlag/yes"}, {`{"text":"a","flag":true}`, "/text"}, {`{"aBool":true,"a_bool":true}`, "/a_bool"},
		{`{"at":"2026-01-31"}`, "/at"}, {`{"at":"2026-01-31T12:00:00.1234567890Z"}`, "/at"}, {`{"at":"0000-01-01T00:00:00Z"}`, "/at"}, {`{"at":5}`, "/at"},
		{`{"within":"1m"}`, "/within"}, {`{"within":"315576000001s"}`, "/within"}, {`{"within":"1.s"}`, "/within"}, {`{"within":"--1s"}`, "/within"}, {`{"within":".5s"}`, "/within"},
		{`{"mask":"user.display_name"}`, "/mask"}, {`{"mask":"a,,b"}`, "/mask"}, {`{"struct":[1]}`, "/struct"}, {`{"list":{}}`, "/list"}, {`{"any":{"n":1}}`, "/any"},
		{`{"any":{"@type":"x/acme.None"}}`, "/any/@type"}, {`{"any":{"@type":"x/google.protobuf.Duration"}}`, "/any"}, {`{"any":{"@type":"x/acme.kinds.v1.Number","x":1}}`, "/any/x"},
		{`{"numbers":[{"n":"x"}]}`, "/numbers/0/n"}, {`{"self":1}`, "/self"}, {`{"wrappedLong":"x"}`, "/wrappedLong"}, {`{"null":"NONE"}`, "/null"},
		{strings.Repeat(`{"self":`, 120) + "{}" + strings.Repeat("}", 120), strings.Repeat("/self", 100)},
	} {
		v, err := canon.ParseObject([]byte(tt.args), canon.Limits{Depth: 1000})
		if err != nil {
			t.Fatal(err)
		}
		_, _, failed := run(t, e, execution(ts["v1_Kinds_Echo"], v))
		if failed == nil || failed.Code != toolkeep.InvalidParameters || !failed.NothingSent {
			t.Errorf("%.80s: %v", tt.args, failed)
			continue
		}
		// A message about a oneof names its fields.
		if strings.Contains(tt.args, `"flag":true`) && (!strings.Contains(failed.Message, `"text"`) || !strings.Contains(failed.Message, `"flag"`) || !strings.Contains(failed.Message, `"number"`)) {
			t.Error(failed.Message)
		}
		if at := failed.Details["pointer"]; at != tt.pointer && tt.pointer != "" {
			t.Errorf("%.80s is refused at %v, want %s", tt.args, at, tt.pointer)
		}
	}
	if _, calls := s.Metadata(); calls != 0 {
		t.Errorf("%d calls arrived", calls)
	}
	_, _, failed := run(t, e, execution(ts["Legacy_Echo"], args(t, `{"times":1}`)))
	wantCode(t, failed, toolkeep.InvalidParameters)
	for _, a := range []string{`{}`, `{"messages":1}`, `{"messages":[{"n":"x"}]}`, `{"messages":[],"n":1}`} {
		_, _, failed := run(t, e, execution(ts["Kinds_Sum"], args(t, a)))
		wantCode(t, failed, toolkeep.InvalidParameters)
	}
	for _, a := range []string{`{}`, `{"text":"x"}`} {
		_, _, failed := run(t, e, execution(ts["Kinds_Day"], args(t, a)))
		wantCode(t, failed, toolkeep.InvalidParameters)
	}
}

// teller collects progress.
type teller struct {
	mu   sync.Mutex
	told []toolkeep.Progress
}

func (l *teller) Progress(p toolkeep.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, p)
}

// TestStreamCaps cuts streams off by count, bytes and time, and expects a warning.
func TestStreamCaps(t *testing.T) {
	stopped := make(chan struct{}, 10)
	s := grpctest.Start(t, grpctest.Options{Stopped: stopped})
	ts, e := importTools(t, s), newExecutor(t)
	wantCut := func(t *testing.T, out *toolkeep.Output, reason string, most int) {
		t.Helper()
		tree := out.Value.(map[string]any)
		n := len(tree["messages"].([]any))
		if tree["complete"] != false || n == 0 || n > most {
			t.Errorf("%d messages, complete %v", n, tree["complete"])
		}
		if len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0].Message, reason) {
			t.Errorf("the warnings are %v, want %q", out.Warnings, reason)
		}
		select {
		case <-stopped:
		case <-time.After(time.Minute):
			t.Error("the server was not told")
		}
	}
	t.Run("count", func(t *testing.T) {
		x := execution(ts.with(t, "Kinds_Forever", map[string]any{"max_frames": number(3)}), args(t, `{}`))
		listener := &teller{}
		x.Caller = listener
		_, out, err := run(t, e, x)
		if err != nil {
			t.Fatal(err)
		}
		wantCut(t, out, "limit of 3 messages", 3)
		if len(listener.told) != 3 || listener.told[2].Message[:10] != "3 messages" {
			t.Errorf("the progress is %v", listener.told)
		}
	})
	t.Run("exactly", func(t *testing.T) {
		got, out, err := run(t, e, execution(ts.with(t, "Kinds_Count", map[string]any{"max_frames": number(3)}), args(t, `{"to":3}`)))
		if err != nil || !strings.Contains(got, `"complete":true`) || len(out.Warnings) != 0 {
			t.Errorf("%s %v %v", got, out, err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		x := execution(ts.with(t, "Kinds_Forever", map[string]any{"max_frames": number(100_000)}), args(t, `{}`))
		x.MaxBytes = 500
		_, out, err := run(t, e, x)
		if err != nil {
			t.Fatal(err)
		}
		wantCut(t, out, "limit of 500 bytes", 50)
	})
	t.Run("time", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // enough time for the first message
		defer cancel()
		_, out, err := runWith(ctx, e, execution(ts.with(t, "Kinds_Forever", map[string]any{"max_frames": number(100_000)}), args(t, `{}`)))
		if err != nil {
			t.Fatal(err, err.Cause)
		}
		wantCut(t, out, "", 100_000) // a fast machine reaches its message limit first
	})
}

// TestDeadline: the server learns its deadline, and a longer call is E3502.
func TestDeadline(t *testing.T) {
	stopped := make(chan struct{}, 10)
	s := grpctest.Start(t, grpctest.Options{Stopped: stopped})
	ts, e := importTools(t, s), newExecutor(t)
	got, _, err := run(t, e, execution(ts.with(t, "Kinds_Meta", map[string]any{"deadline_ms": number(60_000)}), args(t, `{}`)))
	if err != nil || !strings.Contains(got, `":deadline":"true"`) {
		t.Errorf("%s %v", got, err)
	}
	got, _, err = run(t, e, execution(ts["Kinds_Meta"], args(t, `{}`)))
	if err != nil || strings.Contains(got, `":deadline"`) {
		t.Errorf("%s %v", got, err)
	}
	for ms := 50; ; ms *= 4 { // on a busy machine a call is not sent at once
		_, _, err = run(t, e, execution(ts.with(t, "Kinds_Slow", map[string]any{"deadline_ms": number(ms)}), args(t, `{}`)))
		wantCode(t, err, toolkeep.UpstreamTimeout)
		if !err.NothingSent || ms > 10_000 {
			break
		}
	}
	if err.NothingSent {
		t.Error("NothingSent is set")
	}
	select {
	case <-stopped:
	case <-time.After(time.Minute):
		t.Error("the server was not told")
	}
}

// TestMetadata: a call's metadata has exactly what belongs there.
func TestMetadata(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	m := ts.with(t, "Kinds_Meta", map[string]any{"metadata": map[string]any{"x-team": "tools", "authorization": "fixed", "x-bin": "\xff"}})
	x := execution(m, args(t, `{}`))
	x.Tracestate = "vendor=1"
	x.Key, x.Traceparent = "key-1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer", Prefix: "Token"}, Value: "abc"}, {Spec: toolkeep.AuthSpec{Type: "api_key", Name: "X-Key"}, Value: "def"}}
	if _, _, err := run(t, e, x); err != nil {
		t.Fatal(err, err.Cause)
	}
	md, _ := s.Metadata()
	want := map[string][]string{":authority": {s.Addr}, "content-type": {"application/grpc+proto"}, "user-agent": md["user-agent"],
		"x-team": {"tools"}, "authorization": {"Token abc"}, "x-key": {"def"}, "traceparent": {x.Traceparent}, "tracestate": {"vendor=1"}}
	delete(md, "x-bin")
	if !strings.HasPrefix(strings.Join(md["user-agent"], ""), "toolkeep") || !reflect.DeepEqual(map[string][]string(md), want) {
		t.Errorf("the metadata are %v, want %v", md, want)
	}
	idempotent := *m
	idempotent.Idempotent = true
	x.Tool.Manifest, x.Tool.Digest = &idempotent, "other"
	if _, _, err := run(t, e, x); err != nil {
		t.Fatal(err)
	}
	if md, _ := s.Metadata(); !slices.Equal(md["idempotency-key"], []string{"key-1"}) {
		t.Errorf("idempotency-key is %v", md["idempotency-key"])
	}
}

// TestStatus checks the mapping of every code, with details.
func TestStatus(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	for code := codes.Canceled; code <= codes.Unauthenticated+1; code++ {
		x := execution(ts["Kinds_Fail"], args(t, fmt.Sprintf(`{"code":%d,"message":"the words"}`, code)))
		_, _, err := run(t, e, x)
		want, status := toolkeep.GRPCError, 0
		switch code {
		case codes.DeadlineExceeded:
			want = toolkeep.UpstreamTimeout
		case codes.Unauthenticated:
			want, status = toolkeep.SecretAccessDenied, 401
		case codes.PermissionDenied:
			want, status = toolkeep.SecretAccessDenied, 403
		case codes.ResourceExhausted:
			want = toolkeep.RateLimitExceeded
		}
		wantCode(t, err, want)
		if err.NothingSent || err.Details["grpc_code"] != codeName(code) || err.Details["grpc_message"] != "the words" {
			t.Errorf("%v: %+v", code, err)
		}
		if got, _ := err.Details["status"].(int); got != status {
			t.Errorf("%v: details.status is %v", code, got)
		}
	}
	x := execution(ts["Kinds_Fail"], args(t, `{"code":10,"message":"busy","details":[
		{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2.5s"},
		{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"BUSY","domain":"acme.example","metadata":{"a":"b"}},
		{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"n","description":"too large"}]},
		{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":"s"}]},
		{"@type":"type.googleapis.com/google.rpc.DebugInfo","stackEntries":["main.go:1"]},
		{"@type":"type.googleapis.com/acme.kinds.v1.Number","n":"9007199254740993"}]}`))
	_, _, err := run(t, e, x)
	wantCode(t, err, toolkeep.GRPCError)
	if err.RetryAfter != 2500*time.Millisecond || !err.Retryable {
		t.Errorf("retry after %v, %v", err.RetryAfter, err.Retryable)
	}
	got := string(canon.Append(nil, err.Details["grpc_details"]))
	for _, part := range []string{`"reason":"BUSY"`, `"field":"n"`, `"subject":"s"`, `"n":"9007199254740993"`, `"retryDelay":"2.500s"`} {
		if !strings.Contains(got, part) {
			t.Errorf("the details lack %s: %s", part, got)
		}
	}
	if strings.Contains(fmt.Sprint(err.Details, err.Message, err.Cause), "main.go") {
		t.Error("the server's stack is shown")
	}
	_, _, err = run(t, e, execution(ts["Kinds_FailLate"], args(t, `{"code":5}`)))
	if err == nil || err.Details["messages_received"] != 1 {
		t.Errorf("%+v", err)
	}
}

// TestUnknownAny: an Any of unknown type keeps its bytes.
func TestUnknownAny(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	m := ts["v1_Kinds_Echo"]
	// The server echoes an Any made from bytes; its type acme.None is unknown to
	// everyone.
	b, failed := e.bindings.Of(execution(m, nil).Tool, parse)
	if failed != nil {
		t.Fatal(failed)
	}
	show := &shower{types: b.types, left: 1 << 20}
	msg, err := decode(b.method.Output(), []byte("\x92\x02\x0d\x0a\x06x/None\x12\x03\xff\x00\x01"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := show.message(msg, maxDepth)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(canon.Append(nil, v.(map[string]any)["any"])); got != `{"@type":"x/None","value":"/wAB"}` {
		t.Errorf("any is %s", got)
	}
}

// TestTLS calls over TLS, with a client certificate and without.
func TestTLS(t *testing.T) {
	ca, other := grpctest.NewAuthority(t), grpctest.NewAuthority(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.PEM)
	plain := &tls.Config{Certificates: []tls.Certificate{ca.Server(t, "kinds.internal")}}
	mutual := &tls.Config{Certificates: plain.Certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	_, mine := ca.Client(t, "tool")
	_, foreign := other.Client(t, "tool")
	mtls := func(pem string) []toolkeep.Credential {
		return []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "mtls"}, Value: pem}}
	}
	for _, tt := range []struct {
		name   string
		server *tls.Config
		tls    map[string]any
		creds  []toolkeep.Credential
		code   toolkeep.Code
	}{
		{"by address", plain, map[string]any{"ca": string(ca.PEM)}, nil, ""},
		{"by name", plain, map[string]any{"ca": string(ca.PEM), "server_name": "kinds.internal"}, nil, ""},
		{"wrong name", plain, map[string]any{"ca": string(ca.PEM), "server_name": "another.internal"}, nil, toolkeep.TLSError},
		{"wrong authority", plain, map[string]any{"ca": string(other.PEM)}, nil, toolkeep.TLSError},
		{"system's authorities", plain, map[string]any{}, nil, toolkeep.TLSError},
		{"mutual", mutual, map[string]any{"ca": string(ca.PEM)}, mtls(mine), ""},
		{"mutual, no certificate", mutual, map[string]any{"ca": string(ca.PEM)}, nil, toolkeep.NetworkError},
		{"mutual, a foreign certificate", mutual, map[string]any{"ca": string(ca.PEM)}, mtls(foreign), toolkeep.NetworkError},
		{"no PEM", mutual, map[string]any{"ca": string(ca.PEM)}, mtls("nothing"), toolkeep.SecretAccessDenied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := grpctest.Start(t, grpctest.Options{TLS: tt.server})
			ts, e := importTools(t, s), newExecutor(t)
			x := execution(ts.with(t, "Kinds_Sum", map[string]any{"plaintext": nil, "tls": tt.tls}), args(t, `{"messages":[{"n":2},{"n":3}]}`))
			x.Credentials = tt.creds
			got, _, err := run(t, e, x)
			if tt.code == "" {
				if err != nil || got != `{"n":"5"}` {
					t.Fatalf("%s %v (because of %v)", got, err, err.Cause)
				}
				return
			}
			if tt.code == toolkeep.NetworkError && err != nil && err.Code == toolkeep.TLSError {
				return // in TLS 1.3 the server may refuse before or after the call began
			}
			wantCode(t, err, tt.code)
		})
	}
}

// TestApart: connections are shared only where permitted.
func TestApart(t *testing.T) {
	ca := grpctest.NewAuthority(t)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.PEM)
	s := grpctest.Start(t, grpctest.Options{TLS: &tls.Config{Certificates: []tls.Certificate{ca.Server(t, "x")}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients}})
	ts, e := importTools(t, s), newExecutor(t)
	_, one := ca.Client(t, "one")
	_, two := ca.Client(t, "two")
	m := ts.with(t, "Kinds_Old", map[string]any{"plaintext": nil, "tls": map[string]any{"ca": string(ca.PEM)}})
	wider := *m
	wider.Permissions = &toolkeep.Permissions{Network: append(slices.Clone(m.Permissions.Network), toolkeep.HostPort{Host: "other.example.com"})}
	for _, tt := range []struct {
		tenant, cert string
		m            *toolkeep.Manifest
		conns        int
	}{
		{"acme", "", m, 1}, {"acme", "", m, 1}, {"other", "", m, 2}, {"acme", one, m, 3}, {"acme", one, m, 3}, {"acme", two, m, 4}, {"acme", "", &wider, 5}, {"acme", "", m, 5},
	} {
		x := execution(tt.m, args(t, `{}`))
		x.Principal = &toolkeep.Principal{Tenant: tt.tenant}
		if tt.cert != "" {
			x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "mtls"}, Value: tt.cert}}
		}
		if _, _, err := run(t, e, x); err != nil {
			t.Fatal(err, err.Cause)
		}
		if n := s.Conns(); n != tt.conns {
			t.Errorf("%d connections, want %d", n, tt.conns)
		}
	}
}

// TestBounded: the number of connections is bounded, even during calls.
func TestBounded(t *testing.T) {
	started := make(chan struct{}, 1)
	s := grpctest.Start(t, grpctest.Options{Started: started})
	ts := importTools(t, s)
	e := New(Config{Egress: egress.PoolConfig{Max: 2}})
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan *toolkeep.Error, 1)
	go func() {
		_, _, err := runWith(ctx, e, execution(ts["Kinds_Slow"], args(t, `{}`)))
		done <- err
	}()
	<-started
	for i := range 5 {
		x := execution(ts["Kinds_Old"], args(t, `{}`))
		x.Principal = &toolkeep.Principal{Tenant: fmt.Sprint(i)}
		if _, _, err := run(t, e, x); err != nil {
			t.Fatal(err)
		}
	}
	if n := e.pool.len(); n != 2 {
		t.Errorf("%d connections are kept", n)
	}
	select {
	case err := <-done:
		t.Fatalf("the call under way ended: %v", err)
	default:
	}
	cancel()
	wantCode(t, <-done, toolkeep.Cancelled)
	e.Close()
	if _, _, err := run(t, e, execution(ts["Kinds_Old"], args(t, `{}`))); err != nil || e.pool.len() != 0 {
		t.Errorf("after Close: %v, %d connections", err, e.pool.len())
	}
}

// TestKilled stops the server in mid-stream, then restarts it.
func TestKilled(t *testing.T) {
	started := make(chan struct{}, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpctest.Serve(t, l, grpctest.Options{Started: started})
	ts, e := importTools(t, s), newExecutor(t)
	done := make(chan *toolkeep.Error, 1)
	go func() {
		_, _, err := runWith(t.Context(), e, execution(ts["Kinds_Slow"], args(t, `{}`)))
		done <- err
	}()
	<-started
	s.Stop()
	failed := <-done
	wantCode(t, failed, toolkeep.NetworkError)
	if failed.NothingSent || !failed.Retryable {
		t.Errorf("%+v", failed)
	}
	_, _, failed = run(t, e, execution(ts["Kinds_Old"], args(t, `{}`)))
	wantCode(t, failed, toolkeep.NetworkError)
	if !failed.NothingSent || failed.Details["reason"] != "connect" {
		t.Errorf("%+v", failed)
	}
	if l, err = net.Listen("tcp", s.Addr); err != nil {
		t.Fatal(err)
	}
	grpctest.Serve(t, l, grpctest.Options{})
	// The next call dials at once, despite earlier failures.
	if _, _, failed = run(t, e, execution(ts["Kinds_Old"], args(t, `{}`))); failed != nil {
		t.Errorf("after the server came back: %v (because of %v)", failed, failed.Cause)
	}
}

// TestBomb: small responses that decode to large ones are refused.
func TestBomb(t *testing.T) {
	s := grpctest.Start(t, grpctest.Options{})
	ts, e := importTools(t, s), newExecutor(t)
	b, failed := e.bindings.Of(execution(ts["v1_Kinds_Echo"], nil).Tool, parse)
	if failed != nil {
		t.Fatal(failed)
	}
	a := &attempt{x: execution(ts["v1_Kinds_Echo"], nil), binding: b, limit: 1 << 30, parent: t.Context()}
	// numbers = 19: empty messages of three bytes each.
	raw := []byte(strings.Repeat("\x9a\x01\x00", maxValues+1))
	_, bad := a.read(&shower{types: b.types, left: a.limit}, raw)
	wantCode(t, bad, toolkeep.ResultTooLarge)
	_, bad = a.read(&shower{types: b.types, left: 1000}, raw[:3*500])
	wantCode(t, bad, toolkeep.ResultTooLarge)
	// longs = 17, packed: one byte each.
	packed := append([]byte("\x8a\x01"), 0x81, 0x89, 0x7a)
	packed = append(packed, make([]byte, 0x1e8481)...)
	_, bad = a.read(&shower{types: b.types, left: a.limit}, packed)
	wantCode(t, bad, toolkeep.ResultTooLarge)
	// self = 27, deeper than messages may be.
	deep := []byte{}
	for range 120 {
		head := []byte{0xda, 0x01}
		for n := len(deep); ; n >>= 7 {
			if n < 0x80 {
				head = append(head, byte(n))
				break
			}
			head = append(head, byte(n&0x7f|0x80))
		}
		deep = append(head, deep...)
	}
	_, bad = a.read(&shower{types: b.types, left: a.limit}, deep)
	wantCode(t, bad, toolkeep.InvalidResponse)
}

func (p *pool) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent.Len()
}
