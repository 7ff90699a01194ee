//go:build linux

package upstream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// TestModernRefusals: a server that refuses the revision but names it is asked once
// more, and a tool whose arguments cannot be sent as headers is dropped.
func TestModernRefusals(t *testing.T) {
	var discovers atomic.Int64
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		m, err := mcp.Parse(data, canon.Limits{})
		if err != nil {
			t.Error(err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case mcp.MethodDiscover:
			if discovers.Add(1) == 1 {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write(mcp.Refuse(m.ID, &mcp.Error{Code: mcp.CodeUnsupportedVersion, Message: "no", Data: []byte(`{"supported":["2026-07-28"]}`)}).Bytes())
				return
			}
			_, _ = w.Write(mcp.Reply(m.ID, []byte(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)).Bytes())
		case mcp.MethodListTools:
			_, _ = w.Write(mcp.Reply(m.ID, []byte(`{"tools":[
				{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}},
				{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A"}}}},
				{"name":"twice","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}}]}`)).Bytes())
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(b.Close)
	s := start(t, httpConfig(t), httpSpec(b.URL))
	d, err := s.Definitions(t.Context(), alice(), "s")
	if err != nil || d.Version != mcp.V20260728 || len(d.Tools) != 1 || mcp.Text(d.Tools[0], "name") != "good" {
		t.Errorf("%s of %s, %v", d.Tools, d.Version, err)
	}
	if text := logs(t, s, alice()); !strings.Contains(text, "tool left out: bad") || !strings.Contains(text, "tool left out: twice") {
		t.Errorf("the log does not say it: %s", text)
	}
}

// needy is an Authorizer whose error has NothingSent set.
type needy struct{ token atomic.Pointer[string] }

func (n *needy) Header(context.Context) (http.Header, error) {
	return http.Header{"Authorization": {"Bearer " + *n.token.Load()}}, nil
}

func (n *needy) Unauthorized(context.Context, *http.Response) error {
	e := toolkeep.NewError(toolkeep.LoginRequired, "log in first")
	e.NothingSent = true
	return e
}

// TestLoginEndsInASession: a call refused in a running session for want of a login has
// done nothing, so its caller can repeat it.
func TestLoginEndsInASession(t *testing.T) {
	b := newWeb(t, func(w http.ResponseWriter, r *http.Request, _ *mcp.Message) bool {
		if r.Header.Get("Authorization") == "Bearer good" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	who, good, ended := &needy{}, "good", "ended"
	who.token.Store(&good)
	c := httpConfig(t)
	c.Authorize = func(context.Context, *Spec, *toolkeep.Principal) (Authorizer, error) { return who, nil }
	spec := httpSpec(b.URL)
	spec.Session = SessionPrincipal
	s := start(t, c, spec)
	call(t, s, toolCall(alice(), "x", ""))
	who.token.Store(&ended)
	if e := fails(t, s, toolCall(alice(), "x", ""), toolkeep.LoginRequired); !e.NothingSent {
		t.Error("the call is said to have left")
	}
	who.token.Store(&good)
	call(t, s, toolCall(alice(), "x", ""))
	if n := b.calls.Load(); n != 2 {
		t.Errorf("%d calls", n)
	}
}
