package transport

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// cursor is the read position of a stream.
type cursor struct {
	id    string        // of the last event with an id
	retry time.Duration // from the server, or 0
	moved bool          // an event arrived since the last check
}

func (c *cursor) note(e mcp.Event) {
	c.moved = true
	if e.Retry > 0 {
		c.retry = e.Retry
	}
	if e.ID == "" || len(e.ID) > maxEventID {
		return
	}
	for i := 0; i < len(e.ID); i++ {
		if e.ID[i] < 0x20 || e.ID[i] == 0x7f {
			return // no header could send it back
		}
	}
	c.id = e.ID
}

// wait returns the pause before the attempt, counted from 1.
func (p *peer) wait(cur *cursor, attempt int, asked time.Duration) time.Duration {
	if asked > 0 {
		return min(asked, maxServerWait)
	}
	if cur.retry > 0 && attempt <= 1 {
		return min(max(cur.retry, min(minServerWait, p.config.retryMin)), maxServerWait)
	}
	d := p.config.retryMin
	for range attempt - 1 {
		if d *= 2; d >= p.config.RetryMax {
			return p.config.RetryMax
		}
	}
	return d
}

var errStreamEnded = errors.New("the event stream ended before the answer")

// follow reads a request's response stream to its end, and resumes it if it breaks
// before the response.
func (c *HTTPConn) follow(x *exchange, resp *http.Response) {
	defer x.end()
	var cur cursor
	attempt := 0
	for resp != nil {
		before := cur.id
		err := c.consume(x.ctx, resp, x, &cur)
		switch {
		case !c.waits(x):
			return
		case errors.Is(err, mcp.ErrTooLarge):
			c.lose(x, err)
			return
		case x.modern || cur.id == "":
			c.lose(x, errStreamEnded)
			return
		}
		if cur.id != before {
			attempt = 0
		}
		resp = c.resume(x, &cur, &attempt)
	}
}

// resume reopens the stream after the last event. nil: it cannot, and the request is
// settled.
func (c *HTTPConn) resume(x *exchange, cur *cursor, attempt *int) *http.Response {
	var asked time.Duration
	for {
		if *attempt >= maxRetries {
			c.lose(x, errStreamEnded)
			return nil
		}
		*attempt++
		if !toolkeep.Sleep(x.ctx, c.wait(cur, *attempt, asked)) {
			c.take(x)
			return nil
		}
		resp, err := c.get(x.ctx, cur.id)
		switch {
		case err == nil:
			c.reconnects.Add(1)
			return resp
		case x.ctx.Err() != nil:
			c.take(x)
			return nil
		case err.Status == http.StatusNotFound && c.Session() != "":
			c.lose(x, ErrSession)
			c.fail(ErrSession)
			return nil
		case !passing(err):
			c.lose(x, errStreamEnded)
			return nil
		}
		asked = err.RetryAfter
	}
}

// passing reports whether another attempt may succeed.
func passing(e *SendError) bool {
	return e.Status == 0 || e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout
}

// get opens an event stream.
func (c *HTTPConn) get(ctx context.Context, last string) (*http.Response, *SendError) {
	c.mu.Lock()
	session, version := c.session, c.version
	c.mu.Unlock()
	resp, err := c.do(ctx, call{method: http.MethodGet, url: c.target, hooked: true, set: func(h http.Header) {
		h.Set("Accept", "text/event-stream")
		protocol(h, session, version)
		if last != "" {
			h.Set(mcp.HeaderLastEventID, last)
		}
	}})
	if err != nil {
		return nil, err
	}
	return streamOf(resp)
}

// streamOf refuses a response to GET that is not an event stream.
func streamOf(resp *http.Response) (*http.Response, *SendError) {
	if resp.StatusCode != http.StatusOK {
		discard(resp)
		return nil, refusal(resp, nil)
	}
	if mediaType(resp) != "text/event-stream" || encoded(resp) {
		_ = resp.Body.Close()
		return nil, &SendError{Status: resp.StatusCode, Err: errors.New("the server answered " + orNothing(mediaType(resp)) + " where an event stream is expected")}
	}
	return resp, nil
}

// consume delivers what arrives on a stream until its end. x is the request that it
// answers, nil on the server's own stream.
func (c *HTTPConn) consume(ctx context.Context, resp *http.Response, x *exchange, cur *cursor) error {
	defer resp.Body.Close()
	r := mcp.NewEventReader(resp.Body, c.config.Limits.Bytes+eventSlack)
	for {
		e, err := r.Next()
		if err != nil && !errors.Is(err, mcp.ErrTooLarge) {
			return err
		}
		cur.note(e)
		if err != nil {
			c.oversized.Add(1)
			if x != nil {
				return err
			}
			continue
		}
		if len(e.Data) > 0 && (e.Name == "" || e.Name == "message") {
			_ = c.receive(ctx, e.Data, x, c.learn) // counted there
		}
	}
}

// eventSlack is the room in an event besides its message.
const eventSlack = 8 << 10

// openTime is how long the first request waits for the server's own stream: server
// requests sent before it is open may be lost. It is short, because some servers send
// no response head before the first event.
const openTime = time.Second

// listen opens the server's own stream, once, and waits for the server's response.
func (c *HTTPConn) listen(ctx context.Context) {
	if c.config.noStream {
		return
	}
	c.mu.Lock()
	first := !c.opened
	if first {
		c.opened, c.listening = true, true
	}
	c.mu.Unlock()
	answered := make(chan struct{})
	if !first || !c.spawn(func() { c.ownStream(sync.OnceFunc(func() { close(answered) })) }) {
		return
	}
	late := time.NewTimer(openTime)
	defer late.Stop()
	select {
	case <-answered:
	case <-late.C:
	case <-ctx.Done():
	}
}

// ownStream keeps the server's stream open. A server without one answers 405 by the
// specification, and in practice any status from 400 up; the connection works without
// it. It calls answered after the server's first response.
func (c *HTTPConn) ownStream(answered func()) {
	defer answered()
	defer func() {
		c.mu.Lock()
		c.listening = false
		c.mu.Unlock()
	}()
	var (
		cur     cursor
		attempt int
		was     bool // it was open before
	)
	for {
		resp, err := c.get(c.ctx, cur.id)
		answered()
		var asked time.Duration
		switch {
		case err == nil:
			if was {
				c.reconnects.Add(1)
			}
			was, cur.moved = true, false
			_ = c.consume(c.ctx, resp, nil, &cur)
			if cur.moved {
				attempt = 0
			}
		case was && err.Status == http.StatusNotFound && c.Session() != "":
			c.fail(ErrSession)
			return
		case !passing(err):
			return
		default:
			asked = err.RetryAfter
		}
		attempt++
		if !toolkeep.Sleep(c.ctx, c.wait(&cur, attempt, asked)) {
			return
		}
	}
}
