package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// failureLife is how long a failure of the service is remembered.
const failureLife = time.Second

// remote queries the service and caches its answers.
type remote struct {
	c    *Config
	base string
	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	timeout, life, absent time.Duration
	most                  int

	mu      sync.Mutex
	entries map[key]*entry
	ended   bool
}

// entry is one answer, or a running request for it.
type entry struct {
	ready   chan struct{} // closed when the other fields are set
	context *Context
	err     error
	until   time.Time
}

func newRemote(c *Config, base *url.URL) *remote {
	r := &remote{c: c, base: strings.TrimRight(base.String(), "/"), entries: map[key]*entry{},
		timeout: c.Timeout, life: c.Life, most: c.entries}
	if r.timeout <= 0 {
		r.timeout = 500 * time.Millisecond
	}
	if r.life <= 0 {
		r.life = 5 * time.Minute
	}
	r.absent = min(30*time.Second, r.life)
	if r.most <= 0 {
		r.most = 10_000
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *remote) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.stop()
	r.done.Wait()
}

// get returns the service's answer, nil if it has none. Concurrent callers with the same key share
// one request, which none of them can stop.
func (r *remote) get(ctx context.Context, k key) (*Context, error) {
	r.mu.Lock()
	e := r.entries[k]
	if e == nil || e.over(r.c.Clock()) {
		if r.ended {
			r.mu.Unlock()
			return nil, errors.New("the provider of contexts has stopped")
		}
		r.makeRoom()
		e = &entry{ready: make(chan struct{})}
		r.entries[k] = e
		r.done.Go(func() { r.fill(e, k) })
	}
	r.mu.Unlock()
	select {
	case <-e.ready:
		return e.context, e.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// over reports whether an answer has expired.
func (e *entry) over(now time.Time) bool {
	select {
	case <-e.ready:
		return !now.Before(e.until)
	default:
		return false
	}
}

func (r *remote) fill(e *entry, k key) {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeout)
	defer cancel()
	defer close(e.ready)
	e.context, e.err = r.ask(ctx, k)
	life := r.life
	switch {
	case e.err != nil:
		life = failureLife
		r.c.Log.Warn("the context service returned no usable answer", "agent_id", k.agent, "tool_id", k.tool, "required", r.c.Required, "error", e.err)
	case e.context == nil:
		life = r.absent
	}
	e.until = r.c.Clock().Add(life)
}

// makeRoom drops expired answers if there are too many, and if none has expired, any one. The lock
// is held.
func (r *remote) makeRoom() {
	if len(r.entries) < r.most {
		return
	}
	now := r.c.Clock()
	var any key
	for k, e := range r.entries {
		if e.over(now) {
			delete(r.entries, k)
		}
		any = k
	}
	if len(r.entries) >= r.most {
		delete(r.entries, any)
	}
}

// forget drops the answers for a tool, or for all tools of an agent. A caller waiting for a running
// request gets its answer; later callers send a new one.
func (r *remote) forget(k key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.tool != AllTools {
		delete(r.entries, k)
		return
	}
	for have := range r.entries {
		if have.tenant == k.tenant && have.agent == k.agent {
			delete(r.entries, have)
		}
	}
}

// ask sends one request. Its errors contain neither the answer nor the token.
func (r *remote) ask(ctx context.Context, k key) (*Context, error) {
	at := r.base + "/api/v1/context/agent/" + url.PathEscape(k.agent) + "/tool/" + url.PathEscape(k.tool)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, errors.New("the request cannot be made")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("X-Tenant-ID", k.tenant)
	if r.c.Bearer != nil {
		token, err := r.c.Bearer(ctx)
		if err != nil {
			return nil, fmt.Errorf("the token for the service: %s", toolkeep.AsError(err).Code)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.c.Client.Do(req)
	if err != nil {
		return nil, plain(ctx, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusNoContent:
		return nil, nil
	default:
		return nil, fmt.Errorf("the service answered with status %d", resp.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, MaxBytes+1))
	if err != nil {
		return nil, plain(ctx, err)
	}
	if len(raw) > MaxBytes {
		return nil, errors.New("the service answered with more than 64 KiB")
	}
	c, err := Parse(raw, false)
	if err != nil {
		return nil, faulty(err)
	}
	return c, nil
}

// plain removes the address from a client's error.
func plain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("the service did not answer in time")
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return err
}

// faulty says where an answer is wrong, without the value.
func faulty(err error) error {
	e := toolkeep.AsError(err)
	faults, _ := e.Details["errors"].([]toolkeep.Fault)
	if len(faults) == 0 {
		return fmt.Errorf("the service's answer is not a JSON object (%s)", e.Code)
	}
	return fmt.Errorf("the service's answer is not a context: at %s: %s", faults[0].Pointer, faults[0].Message)
}
