package transport_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
)

// What a server asks on its own stream before that is there is lost with some of
// them, so it is there when the handshake has ended; a server that sends no head
// holds nothing up for good.
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
