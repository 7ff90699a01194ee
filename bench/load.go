package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// measured is the result of one loop.
type measured struct {
	calls     int64
	took      time.Duration
	cpu       time.Duration   // of the servers
	store     time.Duration   // of the database beside them, 0 without one
	latencies []time.Duration // sorted
}

// cpuPerCall is the servers' CPU time per call in microseconds.
func (m measured) cpuPerCall() float64 { return float64(m.cpu.Microseconds()) / float64(m.calls) }

// storePerCall is the database's CPU time per call in microseconds.
func (m measured) storePerCall() float64 {
	return float64(m.store.Microseconds()) / float64(m.calls)
}

func (m measured) perSecond() float64 { return float64(m.calls) / m.took.Seconds() }

func (m measured) quantile(q float64) time.Duration {
	return m.latencies[min(len(m.latencies)-1, int(q*float64(len(m.latencies))))]
}

// quantiles writes p50 and p99.
func (m measured) quantiles() string { return ms(m.quantile(0.5)) + " / " + ms(m.quantile(0.99)) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }

// target is what a loop sends load to.
type target struct {
	// open gives a client what it sends with.
	open func(client int) (sender, error)
	cpu  func() time.Duration // of the servers so far
	// store is the CPU time of a database beside them; nil is none.
	store func() time.Duration
}

// sender sends one call at a time and waits for its response. i differs in every call of a run; anything but
// success is an error.
type sender interface {
	send(i int64) error
	close()
}

// echoArguments are what std.echo is called with.
func echoArguments() map[string]any {
	return map[string]any{"message": strings.Repeat("The quick brown fox jumps. ", 15),
		"data": map[string]any{"n": 0, "ok": true, "list": []int{1, 2, 3, 4, 5}, "name": "bench"}}
}

// echoBody is a call of std.echo of about 600 bytes.
func echoBody() []byte {
	raw, err := json.Marshal(map[string]any{
		"tool_id":       "std.echo",
		"agent_context": map[string]any{"session_id": ""},
		"parameters":    echoArguments(),
	})
	if err != nil {
		panic(err)
	}
	return raw
}

// maker returns the bytes of the i-th request.
type maker func(i int64) []byte

// request makes whole HTTP requests; with a key each gets one of its own.
func request(p *process, body []byte, key string) maker {
	head := fmt.Sprintf("POST /api/v1/tools/invoke HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n", p.addr, p.key, len(body))
	fixed := append([]byte(head+"\r\n"), body...)
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	return func(i int64) []byte {
		if key == "" {
			return fixed
		}
		return append([]byte(head+"Idempotency-Key: "+key+"-"+run+"-"+strconv.FormatInt(i, 10)+"\r\n\r\n"), body...)
	}
}

// conn is one keep-alive connection with minimal client work.
type conn struct {
	c net.Conn
	r *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, r: bufio.NewReaderSize(c, 16<<10)}, nil
}

// do sends one request and reads its answer; anything but 200 is an error.
func (c *conn) do(req []byte) error {
	length, err := c.start(req)
	if err != nil {
		return err
	}
	if length < 0 {
		return errors.New("an answer without a length")
	}
	_, err = c.r.Discard(length)
	return err
}

// start sends one request and reads the head of its answer: the length of the body,
// which is next, -1 if it comes in chunks. Anything but 200 is an error.
func (c *conn) start(req []byte) (int, error) {
	if _, err := c.c.Write(req); err != nil {
		return 0, err
	}
	status, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	ok := bytes.Contains(status, []byte(" 200 "))
	text := strings.TrimSpace(string(status))
	length := -1
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		if v, is := bytes.CutPrefix(line, []byte("Content-Length: ")); is {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	if !ok {
		body, _ := io.ReadAll(io.LimitReader(c.r, int64(max(length, 0))))
		return 0, fmt.Errorf("%s: %s", text, body)
	}
	return length, nil
}

// chunks reads a body that comes in chunks.
func (c *conn) chunks() (body []byte, err error) {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return nil, err
		}
		piece := make([]byte, n+2) // with the line break behind it
		if _, err := io.ReadFull(c.r, piece); err != nil {
			return nil, err
		}
		if n == 0 {
			return body, nil
		}
		body = append(body, piece[:n]...)
	}
}

// overREST loads servers by REST, each client taking them in turn; with keyed each
// call has an idempotency key of its own.
func overREST(body []byte, keyed bool, servers ...*process) target {
	key := ""
	if keyed {
		key = "key"
	}
	makers := make([]maker, len(servers))
	for k, p := range servers {
		makers[k] = request(p, body, key)
	}
	return target{
		open: func(client int) (sender, error) {
			s := &restSender{makers: makers, turn: client}
			for _, p := range servers {
				c, err := dial(p.addr)
				if err != nil {
					s.close()
					return nil, err
				}
				s.conns = append(s.conns, c)
			}
			return s, nil
		},
		cpu: func() (sum time.Duration) {
			for _, p := range servers {
				sum += p.cpu()
			}
			return sum
		},
	}
}

type restSender struct {
	makers []maker
	conns  []*conn
	turn   int
}

func (s *restSender) send(i int64) error {
	s.turn = (s.turn + 1) % len(s.conns)
	return s.conns[s.turn].do(s.makers[s.turn](i))
}

func (s *restSender) close() {
	for _, c := range s.conns {
		c.c.Close()
	}
}

// closedLoop runs clients that each send the next call after the response.
func closedLoop(t target, clients int, d time.Duration) (measured, error) {
	if _, err := loop(t, clients, d/5); err != nil { // warm up
		return measured{}, err
	}
	return loop(t, clients, d)
}

// requests numbers all calls of the process.
var requests atomic.Int64

func loop(t target, clients int, d time.Duration) (measured, error) {
	errs := make(chan error, clients)
	all := make([][]time.Duration, clients)
	before, storeBefore, began := t.cpu(), t.storeCPU(), time.Now()
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			s, err := t.open(n)
			if err != nil {
				errs <- err
				return
			}
			defer s.close()
			for from := time.Now(); from.Sub(began) < d; {
				if err := s.send(requests.Add(1)); err != nil {
					errs <- err
					return
				}
				now := time.Now()
				all[n] = append(all[n], now.Sub(from))
				from = now
			}
		})
	}
	wg.Wait()
	m := measured{took: time.Since(began), cpu: t.cpu() - before, store: t.storeCPU() - storeBefore}
	return m.finish(all, errs)
}

func (t target) storeCPU() time.Duration {
	if t.store == nil {
		return 0
	}
	return t.store()
}

// finish counts the calls; the first error of a client is the loop's.
func (m measured) finish(all [][]time.Duration, errs <-chan error) (measured, error) {
	m.latencies = slices.Concat(all...)
	m.calls = int64(len(m.latencies))
	slices.Sort(m.latencies)
	select {
	case err := <-errs:
		return m, err
	default:
	}
	if m.calls == 0 {
		return m, errors.New("no call was answered")
	}
	return m, nil
}

// pacedLoop sends at a fixed rate and measures from each call's due time, so that slow responses count in full.
func pacedLoop(t target, rate int, d time.Duration) (measured, error) {
	const workers = 64
	due := make(chan time.Time, rate)
	errs := make(chan error, workers)
	all := make([][]time.Duration, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			s, err := t.open(w)
			if err != nil {
				errs <- err
				return
			}
			defer s.close()
			for at := range due {
				if err := s.send(requests.Add(1)); err != nil {
					errs <- err
					return
				}
				all[w] = append(all[w], time.Since(at))
			}
		})
	}
	began := time.Now()
	gap := time.Second / time.Duration(rate)
	for at := began; at.Sub(began) < d; at = at.Add(gap) {
		if wait := time.Until(at); wait > 0 {
			// time.Sleep wakes up to 1 ms late, which would count as the server's.
			pause := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&pause, nil)
		}
		due <- at
	}
	close(due)
	wg.Wait()
	return measured{took: time.Since(began)}.finish(all, errs)
}

// registerTools publishes n tools of a plausible size.
func registerTools(p *process, n int) error {
	const batch = 500
	for from := 0; from < n; from += batch {
		var tools []any
		for i := from; i < min(from+batch, n); i++ {
			tools = append(tools, map[string]any{"manifest": manifest(i)})
		}
		if err := p.post("/api/v1/tools/batch-register", map[string]any{"tools": tools}); err != nil {
			return err
		}
	}
	return nil
}

func manifest(i int) map[string]any {
	return map[string]any{
		"schema_version": 1, "tool_id": fmt.Sprintf("bench%d.tool_%d", i%50, i), "version": "1.0.0",
		"description": fmt.Sprintf("Tool %d looks up record %d of the register of examples and gives its fields back as they are stored.", i, i),
		"category":    "utility", "tags": []string{"bench", fmt.Sprintf("group-%d", i%20)}, "side_effects": "reads",
		"parameters_schema": map[string]any{"type": "object", "additionalProperties": true, "properties": map[string]any{
			"message": map[string]any{"type": "string", "description": "text that is given back"},
			"data":    map[string]any{"type": "object", "description": "any object, given back as it is"},
		}},
		"cache":     map[string]any{"policy": "ttl", "ttl_s": 3600},
		"execution": map[string]any{"kind": "builtin", "binding": map[string]any{"name": "echo"}},
	}
}

// fillCache makes n calls whose results of about 1 KB are cached.
func fillCache(p *process, n int) error {
	var at atomic.Int64
	errs := make(chan error, 32)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			c, err := dial(p.addr)
			if err != nil {
				errs <- err
				return
			}
			defer c.c.Close()
			for i := at.Add(1); i <= int64(n); i = at.Add(1) {
				body, _ := json.Marshal(map[string]any{"tool_id": "bench0.tool_0", "parameters": map[string]any{
					"message": strconv.FormatInt(i, 10) + strings.Repeat("x", 980)}})
				if err := c.do(request(p, body, "")(i)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
