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

// BenchmarkHTTP measures one request with a JSON response over loopback, with the
// server in the same process: a tools/call of 2026-07-28 with 600 bytes each way.
func BenchmarkHTTP(b *testing.B) {
	text := bytes.Repeat([]byte("lorem ipsum "), 45)
	id := []byte("7") // one request at a time, so the id can be reused
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
	c := transport.HTTP(transport.HTTPConfig{URL: server.URL, Client: &http.Client{Transport: tr}}.WithoutStream())
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
