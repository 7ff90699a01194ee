package mcptool

import (
	"context"
	"strconv"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// maxProgressText bounds a progress message, in characters.
const maxProgressText = 500

// peer is the caller as the server sees it.
type peer struct {
	call  *call
	asker toolkeep.Asker // nil: it only receives progress
	token string
}

var (
	_ upstream.Peer       = (*peer)(nil)
	_ toolkeep.BatchAsker = (*peer)(nil)
)

// peer returns nil if no caller is connected.
func (c *call) peer() *peer {
	if c.x.Caller == nil {
		return nil
	}
	asker, _ := c.x.Caller.(toolkeep.Asker)
	return &peer{call: c, asker: asker, token: c.token()}
}

// capabilities are the caller's, declared to the server; nil leaves them to the
// server's configuration.
func (p *peer) capabilities() []byte {
	if p.asker == nil {
		return []byte(`{}`)
	}
	if c, ok := p.asker.(toolkeep.CapabilityReporter); ok {
		return c.Capabilities()
	}
	return nil
}

// Ask sends the server's request to the caller.
func (p *peer) Ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	if p.asker == nil {
		return nil, mcp.NewError(mcp.CodeMethodNotFound, "this client cannot be asked")
	}
	return p.asker.Ask(ctx, method, params)
}

// AskAll sends several requests of a 2026-07-28 server at once if the caller supports
// it, else one by one.
func (p *peer) AskAll(ctx context.Context, inputRequests []byte) ([]byte, error) {
	if all, ok := p.asker.(toolkeep.BatchAsker); ok {
		return all.AskAll(ctx, inputRequests)
	}
	return upstream.AskEach(ctx, p, inputRequests)
}

// Notify passes progress on, and everything else to a caller that accepts it.
func (p *peer) Notify(method string, params []byte) {
	if l, ok := p.call.x.Caller.(toolkeep.Notifier); ok && method != mcp.NotificationProgress {
		l.Notify(method, params)
		return
	}
	if method != mcp.NotificationProgress || mcp.Text(params, mcp.MetaProgressToken) != p.token {
		return
	}
	g := toolkeep.Progress{Message: p.call.x.Cleaned(toolkeep.Clip(mcp.Text(params, "message"), maxProgressText))}
	rawDone, rawTotal := mcp.Get(params, "progress"), mcp.Get(params, "total")
	done, ok := number(rawDone)
	total, has := number(rawTotal)
	if c, counts := p.call.x.Caller.(toolkeep.ProgressCounter); counts && ok {
		if !has {
			rawTotal = nil
		}
		c.Count(rawDone, rawTotal, g.Message)
		return
	}
	if ok && has && total > 0 {
		g.Percent = int(min(max(100*done/total, 0), 100))
	}
	p.call.x.Caller.Progress(g)
}

func number(raw []byte) (float64, bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil
}
