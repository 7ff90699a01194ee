package httptool

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/executortest"
)

const get = `{"method":"GET","server":"SERVER","path":"/"}`

// packers compress, by encoding.
var packers = map[string]func(io.Writer) io.WriteCloser{
	"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"x-gzip":  func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"br":      func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"raw deflate": func(w io.Writer) io.WriteCloser {
		f, _ := flate.NewWriter(w, 5)
		return f
	},
	"zstd": func(w io.Writer) io.WriteCloser {
		z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		return z
	},
}

func pack(t testing.TB, name string, r io.Reader) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := packers[name](&buf)
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func packed(t testing.TB, encoding string, body []byte) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", encoding)
		w.Write(body)
	})
}

func TestEncodings(t *testing.T) {
	e := newExecutor(t)
	text := `{"list":[` + strings.Repeat(`"again and again",`, 500) + `1]}`
	for name := range packers {
		encoding := strings.TrimPrefix(name, "raw ")
		whole := pack(t, name, strings.NewReader(text))
		tests := []struct {
			name     string
			encoding string
			body     []byte
			limit    int64
			code     toolkeep.Code
		}{
			{"whole", encoding, whole, 1 << 20, ""},
			{"in capitals", strings.ToUpper(encoding), whole, 1 << 20, ""},
			{"twice", encoding + " , gzip", pack(t, "gzip", bytes.NewReader(whole)), 1 << 20, ""},
			{"with identity", "identity, " + encoding, whole, 1 << 20, ""},
			{"at the limit", encoding, whole, int64(len(text)), ""},
			{"over the limit", encoding, whole, int64(len(text)) - 1, toolkeep.ResultTooLarge},
			{"a bomb", encoding, pack(t, name, io.LimitReader(zeros{}, 6<<20)), 1 << 20, toolkeep.ResultTooLarge},
			{"a bomb in a bomb", encoding + ", gzip", pack(t, "gzip", bytes.NewReader(pack(t, name, io.LimitReader(zeros{}, 6<<20)))), 1 << 20, toolkeep.ResultTooLarge},
			{"cut off", encoding, whole[:len(whole)/2], 1 << 20, toolkeep.InvalidResponse},
			{"not packed", encoding, []byte(text), 1 << 20, toolkeep.InvalidResponse},
			{"three times", encoding + ", gzip, gzip", whole, 1 << 20, toolkeep.InvalidResponse},
		}
		for _, tt := range tests {
			t.Run(name+" "+tt.name, func(t *testing.T) {
				out, err := execute(t, e, manifest(t, packed(t, tt.encoding, tt.body), get), `{}`, func(x *toolkeep.Execution) { x.MaxBytes = tt.limit })
				if tt.code == "" {
					if err != nil || string(out.Body) != text || out.BytesRecv != int64(len(tt.body)) {
						t.Fatalf("%d bytes of %d over the wire, %v", out.BytesRecv, len(tt.body), err)
					}
					return
				}
				if err == nil || err.Code != tt.code {
					t.Fatalf("error = %v, want %s", err, tt.code)
				}
			})
		}
	}
}

// TestHundredMegabytes reads the largest permitted response, and refuses one more byte.
func TestHundredMegabytes(t *testing.T) {
	e := newExecutor(t)
	for _, n := range []int64{defaultMaxBytes, defaultMaxBytes + 1} {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush() // without a length
			io.Copy(w, io.LimitReader(zeros{}, n))
		})
		out, err := execute(t, e, manifest(t, base, get), `{}`, func(x *toolkeep.Execution) { x.MaxBytes = 0 })
		if n == defaultMaxBytes && (err != nil || int64(len(out.Body)) != n) {
			t.Errorf("at the limit: %v", err)
		}
		if n > defaultMaxBytes && (err == nil || err.Code != toolkeep.ResultTooLarge) {
			t.Errorf("over the limit: %v", err)
		}
	}
}

// TestRawAnswers are responses that no HTTP library sends.
func TestRawAnswers(t *testing.T) {
	tests := []struct {
		name, raw string
		code      toolkeep.Code
	}{
		{"good", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", ""},
		{"until the end", "HTTP/1.0 200 OK\r\n\r\n{}", ""},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", ""},
		{"a chunk's size that is none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", toolkeep.InvalidResponse},
		{"a chunk longer than it says", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n", toolkeep.InvalidResponse},
		{"the last chunk missing", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", toolkeep.NetworkError},
		{"shorter than it says", "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}", toolkeep.NetworkError},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", toolkeep.InvalidResponse},
		{"headers without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10) + "\r\n\r\n{}", toolkeep.InvalidResponse},
		{"no status", "HTTP/1.1 OK\r\n\r\n", toolkeep.InvalidResponse},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				buf := make([]byte, 4096)
				c.Read(buf)
				io.WriteString(c, tt.raw)
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
			}()
			defer func() { l.Close(); <-done }()
			_, terr := execute(t, e, manifest(t, "http://"+l.Addr().String(), get), `{}`)
			e.pool.Close()
			if tt.code == "" && terr != nil || tt.code != "" && (terr == nil || terr.Code != tt.code) {
				t.Errorf("error = %v (%v), want %q", terr, errors.Unwrap(terr), tt.code)
			}
		})
	}
}

func TestHead(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"7"`)
		w.Header().Add("X-Two", "a")
		w.Header().Add("X-Two", "b")
		w.Header().Set("Set-Cookie", "session=1")
		w.Header().Set("Content-Length", "1234")
		w.Header()["Date"] = nil
	})
	out, err := execute(t, newExecutor(t), manifest(t, base, `{"method":"HEAD","server":"SERVER","path":"/"}`), `{}`)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"headers":{"content-length":"1234","etag":"\"7\"","x-two":"a, b"},"status":200}`
	if got := string(canon.Append(nil, out.Value)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNotModified(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotModified) })
	m := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/","parameters":[{"name":"If-None-Match","arg":"etag","in":"header"}]}`)
	if out, err := execute(t, newExecutor(t), m, `{"etag":"\"1\""}`); err != nil || !out.HasValue || out.Value != nil {
		t.Errorf("asked for: %+v, %v", out, err)
	}
	if _, err := execute(t, newExecutor(t), m, `{}`); err == nil || err.Code != toolkeep.InvalidResponse {
		t.Errorf("not asked for: %v", err)
	}
}

// TestReadAs reads the responses of a server with wrong content types.
func TestReadAs(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "{}")
	})
	out, err := execute(t, newExecutor(t), manifest(t, base, `{"method":"GET","server":"SERVER","path":"/","response":{"content_type":"application/json"}}`), `{}`)
	if err != nil || out.ContentType != "application/json" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestErrorBodies(t *testing.T) {
	const secret = "s3cr/et\"value"
	tests := []struct {
		name, contentType, body string
		want                    any
	}{
		{"JSON", "application/json", `{"error":{"code":7,"message":"no"}}`, map[string]any{"error": map[string]any{"code": json.Number("7"), "message": "no"}}},
		{"problem", "application/problem+json; charset=utf-8", `{"type":"https://x.example/out","title":"Out of stock","status":404}`,
			map[string]any{"type": "https://x.example/out", "title": "Out of stock", "status": json.Number("404")}},
		{"no type", "", `{"a":1}`, map[string]any{"a": json.Number("1")}},
		{"JSON that is none", "application/json", `{"a":`, `{"a":`},
		{"text", "text/plain", "plain", "plain"},
		{"latin1", "text/plain; charset=ISO-8859-1", "caf\xe9", "café"},
		{"utf-16", "text/plain; charset=utf-16le", "h\x00i\x00", "hi"},
		{"unknown charset", "text/plain; charset=klingon", "caf\xe9", "caf\ufffd"},
		{"a secret behind escapes", "application/json", `{"a":"s3cr\u002fet\"value","s3cr\/et\u0022value":[1]}`,
			map[string]any{"a": "[secret]", "[secret]": []any{json.Number("1")}}},
		{"empty", "text/plain", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = nil
				if tt.contentType != "" {
					w.Header().Set("Content-Type", tt.contentType)
				}
				w.WriteHeader(http.StatusNotFound)
				io.WriteString(w, tt.body)
			})
			_, err := execute(t, newExecutor(t), manifest(t, base, get), `{}`, func(x *toolkeep.Execution) {
				x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: secret}}
			})
			if err == nil || err.Code != toolkeep.UpstreamClientError {
				t.Fatal(err)
			}
			got, want := canon.Append(nil, err.Details["body"]), canon.Append(nil, tt.want)
			if !bytes.Equal(got, want) {
				t.Errorf("body = %s, want %s", got, want)
			}
		})
	}
}

func TestRedirectWaits(t *testing.T) {
	now := time.Now()
	e := New(Config{Clock: func() time.Time { return now }})
	defer e.Close()
	for _, tt := range []struct {
		after string
		code  toolkeep.Code
	}{{"0", ""}, {"1", ""}, {"3600", toolkeep.InvalidResponse}} {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				w.Header().Set("Retry-After", tt.after)
				http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
				return
			}
			io.WriteString(w, "{}")
		})
		_, err := execute(t, e, manifest(t, base, get), `{}`)
		if tt.code == "" && err != nil || tt.code != "" && (err == nil || err.Code != tt.code || err.RetryAfter != time.Hour) {
			t.Errorf("after %s: %v", tt.after, err)
		}
	}
	// A wait ends with the call.
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "9")
		http.Redirect(w, r, "/there", http.StatusFound)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	x := execution(t, manifest(t, base, get), `{}`)
	if _, err := e.Execute(ctx, x); !toolkeep.IsCode(err, toolkeep.UpstreamTimeout) {
		t.Errorf("past the deadline: %v", err)
	}
}

// teller collects progress.
type teller struct{ told []toolkeep.Progress }

func (c *teller) Progress(p toolkeep.Progress) { c.told = append(c.told, p) }

func TestStreams(t *testing.T) {
	const streamed = `{"method":"GET","server":"SERVER","path":"/","stream":{"sentinel":"[DONE]","max_events":4,"max_bytes":200,"progress":"/percent"}}`
	tests := []struct {
		name, contentType, body string
		want                    string
		code                    toolkeep.Code
		warn                    string
		percent                 int
	}{
		{name: "events", contentType: "text/event-stream; charset=utf-8", body: "\ufeff: hello\n\ndata: {\"percent\":40}\n\nevent: note\nid: 7\ndata: one\ndata:two\nretry: 5\n\ndata\n\n",
			want: `[{"data":{"percent":40}},{"data":"one\ntwo","event":"note","id":"7"},{"data":""}]`, percent: 40},
		{name: "other line ends", contentType: "text/event-stream", body: "data: 1\r\n\r\ndata: 2\r\rdata: 3\n\r\n", want: `[{"data":1},{"data":2},{"data":3}]`},
		{name: "sentinel", contentType: "text/event-stream", body: "data: 1\n\ndata: [DONE]\n\ndata: 2\n\n", want: `[{"data":1}]`},
		{name: "last empty line forgotten", contentType: "text/event-stream", body: "data: 1\n\ndata: 2\n", want: `[{"data":1},{"data":2}]`},
		{name: "last line cut", contentType: "text/event-stream", body: "data: 1\n\ndata: 2", want: `[{"data":1}]`},
		{name: "nothing", contentType: "text/event-stream", body: ": only comments\n\nevent: x\n\n", want: `[]`},
		{name: "not text", contentType: "text/event-stream", body: "data: a\xff\x00\n\n", want: `[{"data":"a` + "\ufffd\ufffd" + `"}]`},
		{name: "exactly the limit", contentType: "text/event-stream", body: "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n", want: `[{"data":1},{"data":2},{"data":3},{"data":4}]`},
		{name: "exactly the limit and the sentinel", contentType: "text/event-stream", body: "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\ndata: [DONE]\n\n", want: `[{"data":1},{"data":2},{"data":3},{"data":4}]`},
		{name: "too many", contentType: "text/event-stream", body: "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\ndata: 5\n\n", want: `[{"data":1},{"data":2},{"data":3},{"data":4}]`, warn: "limit of 4 events"},
		{name: "too long", contentType: "text/event-stream", body: "data: 1\n\ndata: " + strings.Repeat("x", 300) + "\n\n", want: `[{"data":1}]`, warn: "limit of 200 bytes"},
		{name: "too long at once", contentType: "text/event-stream", body: "data: " + strings.Repeat("x", 300) + "\n\n", code: toolkeep.ResultTooLarge},
		{name: "NDJSON", contentType: "application/x-ndjson", body: "{\"a\":1.50}\r\n\n [2]\n\"x\"", want: `[{"a":1.50},[2],"x"]`},
		{name: "JSON Lines with sentinel", contentType: "application/jsonl", body: "1\n[DONE]\nnonsense\n", want: `[1]`},
		{name: "a line that is not JSON", contentType: "application/x-ndjson", body: "1\n{\n", code: toolkeep.InvalidResponse},
		{name: "sequence", contentType: "application/json-seq", body: "passed over\x1e{\"a\":1}\n\x1e\x1e2\n\x1e[3]", want: `[{"a":1},2,[3]]`},
		{name: "sequence that is none", contentType: "application/json-seq", body: "\x1e{", code: toolkeep.InvalidResponse},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, encoding := range []string{"", "gzip"} {
				base := serve(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", tt.contentType)
					if encoding == "" {
						io.WriteString(w, tt.body)
						return
					}
					w.Header().Set("Content-Encoding", encoding)
					w.Write(pack(t, encoding, strings.NewReader(tt.body)))
				})
				caller := &teller{}
				out, err := execute(t, e, manifest(t, base, streamed), `{}`, func(x *toolkeep.Execution) { x.Caller = caller })
				if tt.code != "" {
					if err == nil || err.Code != tt.code {
						t.Fatalf("error = %v, want %s", err, tt.code)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := string(canon.Append(nil, out.Value)); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				warned := ""
				for _, w := range out.Warnings {
					warned += w.Message
				}
				if !strings.Contains(warned, tt.warn) || (tt.warn == "") != (warned == "") {
					t.Errorf("warned %q, want %q", warned, tt.warn)
				}
				list := out.Value.([]any)
				if len(caller.told) != len(list) {
					t.Fatalf("told %d times of %d events", len(caller.told), len(list))
				}
				if n := len(list); n > 0 {
					last := caller.told[n-1]
					if last.Percent != tt.percent || last.Phase != "streaming" || !strings.HasPrefix(last.Message, fmt.Sprint(n, " events, ")) {
						t.Errorf("told %+v", last)
					}
				}
			}
		})
	}
}

// feed sends its events and then nothing until the request ends.
func feed(t testing.TB, body string, left chan<- struct{}) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, body)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		left <- struct{}{}
	})
}

// TestStreamWithoutEnd: endless streams are cut, and the server notices.
func TestStreamWithoutEnd(t *testing.T) {
	left := make(chan struct{}, 1)
	tests := []struct {
		name, body, stream string
		time               time.Duration // the server's events must arrive within it
		want, warn         string
		code               toolkeep.Code
	}{
		{"the attempt's time", "data: 1\n\n", `{}`, 1500 * time.Millisecond, `[{"data":1}]`, "time limit passed", ""},
		{"half an event is left out", "data: 1\n\ndata: 2\n", `{}`, 1500 * time.Millisecond, `[{"data":1}]`, "time limit passed", ""},
		{"its own time", "data: 1\n\n", `{"max_seconds":2}`, time.Minute, `[{"data":1}]`, "time limit passed", ""},
		{"no event", ": ping\n\n", `{}`, 1500 * time.Millisecond, "", "", toolkeep.UpstreamTimeout},
		{"the most events", "data: 1\n\ndata: 2\n\n", `{"max_events":2}`, time.Minute, `[{"data":1},{"data":2}]`, "limit of 2 events", ""},
		{"a sentinel", "data: 1\n\ndata: end\n\n", `{"sentinel":"end"}`, time.Minute, `[{"data":1}]`, "", ""},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest(t, feed(t, tt.body, left), `{"method":"GET","server":"SERVER","path":"/","stream":`+tt.stream+`}`)
			ctx, cancel := context.WithTimeout(t.Context(), tt.time)
			defer cancel()
			out, err := e.Execute(ctx, execution(t, m, `{}`))
			select {
			case <-left:
			case <-time.After(time.Minute):
				t.Error("the server was not told")
			}
			if tt.code != "" {
				if toolkeep.AsError(err).Code != tt.code {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := string(canon.Append(nil, out.Value)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if (tt.warn == "") != (len(out.Warnings) == 0) || tt.warn != "" && !strings.Contains(out.Warnings[0].Message, tt.warn) {
				t.Errorf("warned %v, want %q", out.Warnings, tt.warn)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		x := execution(t, manifest(t, feed(t, "data: 1\n\n", left), get), `{}`)
		x.Caller = progressFunc(func(toolkeep.Progress) { cancel() })
		if _, err := e.Execute(ctx, x); !toolkeep.IsCode(err, toolkeep.Cancelled) {
			t.Error(err)
		}
		<-left
	})
	t.Run("broken", func(t *testing.T) {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		_, err := execute(t, e, manifest(t, base, get), `{}`)
		if err == nil || err.Code != toolkeep.NetworkError || err.Details["events"] != 1 {
			t.Errorf("%+v", err)
		}
	})
}

type progressFunc func(toolkeep.Progress)

func (f progressFunc) Progress(p toolkeep.Progress) { f(p) }

func execution(t testing.TB, m *toolkeep.Manifest, a string) *toolkeep.Execution {
	t.Helper()
	return &toolkeep.Execution{Tool: executortest.Tool(m), Args: args(t, a), MaxBytes: 1 << 20, Principal: &toolkeep.Principal{Tenant: "acme", Subject: "a"}}
}

// over2 is an HTTP/2 server over TLS.
func over2(t testing.TB, h http.HandlerFunc) (*httptest.Server, *Executor) {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	e := New(Config{Egress: egress.PoolConfig{RootCAs: roots}})
	t.Cleanup(e.Close)
	return s, e
}

func TestStreamOverHTTP2(t *testing.T) {
	left := make(chan struct{}, 1)
	s, e := over2(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: \""+r.Proto+"\"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		left <- struct{}{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := e.Execute(ctx, execution(t, manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"/","stream":{"max_events":1}}`), `{}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(canon.Append(nil, out.Value)); got != `[{"data":"HTTP/2.0"}]` {
		t.Error(got)
	}
	<-left
}
