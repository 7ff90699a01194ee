package transport_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
)

// Some servers lose what they send on their own stream before it is open, so the stream
// is open when the handshake ends; a server that sends no response head delays this
// only briefly.
func TestHTTPOwnStreamIsThereFirst(t *testing.T) {
	for name, heads := range map[string]bool{"open": true, "without a head": false} {
		t.Run(name, func(t *testing.T) {
			var open atomic.Bool
			f := serve(t, &fake{
				post: handshake(func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) {
					answerJSON(w, result(m.ID, `{}`))
				}),
				get: func(w http.ResponseWriter, r *http.Request) {
					open.Store(true)
					if heads {
						stream(w)
					}
					<-r.Context().Done()
				},
			})
			c := f.dial(t, nil)
			initialized(t, c)
			if !open.Load() {
				t.Error("the handshake ended before the stream was asked for")
			}
			write(t, c, request(1, mcp.MethodListTools, ""))
			read(t, c)
		})
	}
}
