package transport_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

// BenchmarkHTTP is one request and its JSON answer over loopback, the server's side
// in the same process: a tools/call of 2026-07-28 with 600 bytes both ways.
func BenchmarkHTTP(b *testing.B) {
	text := bytes.Repeat([]byte("lorem ipsum "), 45)
	id := []byte("7") // one at a time, so that it may be the same
	answer := mcp.Reply(id, append(append([]byte(`{"resultType":"complete","content":[{"type":"text","text":"`), text...), `"}]}`...)).Bytes()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = []string{"application/json"}
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(answer))}
		_, _ = w.Write(answer)
	}))
	defer server.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	c := transport.HTTP(transport.HTTPConfig{URL: server.URL, Client: &http.Client{Transport: tr}, NoStream: true})
	defer c.Close()
	answers := make(chan *mcp.Message, 1)
	c.OnAnswer(func(m *mcp.Message) { answers <- m })
	params := append(append([]byte(`{"name":"echo","arguments":{"text":"`), text...),
		`"},"_meta":{"`+mcp.MetaProtocolVersion+`":"`+mcp.Latest+`","`+mcp.MetaClientCapabilities+`":{}}}`...)
	m := &mcp.Message{ID: id, Method: mcp.MethodCallTool, Params: params}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Write(b.Context(), m); err != nil {
			b.Fatal(err)
		}
		<-answers
	}
}
