package telemetry

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// writer collects whole lines in a bounded buffer and writes them from one goroutine.
// Lines that arrive while the buffer is full are dropped and counted, so that a slow
// disk or pipe never slows a call. Before start and after stop it writes directly.
type writer struct {
	out     io.Writer
	max     int           // most buffered bytes
	every   time.Duration // longest wait of a line
	dropped atomic.Uint64 // lines

	mu      sync.Mutex
	buf     []byte
	spare   []byte
	running bool
	started bool

	first chan struct{} // the buffer is no longer empty
	full  chan struct{} // the buffer is large enough to write
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once
}

// writeAt is the size from which the buffer is written immediately.
const writeAt = 64 << 10

func newWriter(out io.Writer, max int, every time.Duration) *writer {
	return &writer{out: out, max: max, every: every,
		first: make(chan struct{}, 1), full: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{})}
}

// Write takes one or more whole lines. It never returns an error: there is nowhere to
// report a failing log.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		if _, err := w.out.Write(p); err != nil {
			w.dropped.Add(1)
		}
		return len(p), nil
	}
	if len(w.buf)+len(p) > w.max {
		w.dropped.Add(1)
		return len(p), nil
	}
	if len(w.buf) == 0 {
		signal(w.first)
	}
	w.buf = append(w.buf, p...)
	if len(w.buf) >= writeAt {
		signal(w.full)
	}
	return len(p), nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *writer) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return
	}
	w.started, w.running = true, true
	go w.loop()
}

// stop writes out the buffer; later lines are written directly.
func (w *writer) stop() {
	w.mu.Lock()
	started := w.started
	w.started = true // a start after stop does nothing
	w.mu.Unlock()
	w.once.Do(func() {
		close(w.quit)
		if !started {
			close(w.done)
		}
	})
	<-w.done
}

func (w *writer) loop() {
	defer close(w.done)
	timer := time.NewTimer(w.every)
	defer timer.Stop()
	for {
		select {
		case <-w.first:
		case <-w.quit:
			w.last()
			return
		}
		timer.Reset(w.every)
		select {
		case <-timer.C:
		case <-w.full:
		case <-w.quit:
			w.last()
			return
		}
		w.flush()
	}
}

// flush writes outside the lock, so that lines can be added meanwhile.
func (w *writer) flush() {
	w.mu.Lock()
	lines := w.buf
	w.buf = w.spare[:0]
	w.spare = nil
	w.mu.Unlock()
	w.put(lines)
	w.mu.Lock()
	w.spare = lines[:0]
	w.mu.Unlock()
}

// last writes under the lock, so that directly written lines come after it.
func (w *writer) last() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(w.buf)
	w.buf, w.spare, w.running = nil, nil, false
}

func (w *writer) put(lines []byte) {
	if len(lines) == 0 {
		return
	}
	if _, err := w.out.Write(lines); err != nil {
		for _, b := range lines {
			if b == '\n' {
				w.dropped.Add(1)
			}
		}
	}
}
