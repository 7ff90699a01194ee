package telemetry

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// LogConfig configures a Log. The zero value writes JSON lines from INFO up to standard
// error.
type LogConfig struct {
	Out         io.Writer             // default os.Stderr
	Text        bool                  // short lines for people, in local time, instead of JSON
	Level       slog.Level            // of components without their own
	Components  map[string]slog.Level // levels of single components
	Clean       toolkeep.Cleaner      // removes secrets in flight from every text; nil cleans nothing
	BufferBytes int                   // buffered lines; default 1 MiB, beyond it lines are dropped
	flushEvery  time.Duration         // longest wait of a line; default 200 ms
	Clock       func() time.Time      // default time.Now
}

// CallComponent is the component of call lines.
const CallComponent = "tool_executor"

// Log writes one line for every call, and the lines of the program's loggers.
type Log struct {
	levels *Levels
	calls  *level
	w      *writer
	text   bool
	clean  toolkeep.Cleaner
	clock  func() time.Time
	lines  sync.Pool // *[]byte
}

// NewLog returns a Log. Before Start and after Stop it writes each line immediately.
func NewLog(c LogConfig) *Log {
	if c.Out == nil {
		c.Out = os.Stderr
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = 1 << 20
	}
	if c.flushEvery == 0 {
		c.flushEvery = 200 * time.Millisecond
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	l := &Log{levels: NewLevels(c.Level, c.Components), w: newWriter(c.Out, c.BufferBytes, c.flushEvery),
		text: c.Text, clean: c.Clean, clock: c.Clock}
	l.calls = l.levels.of(CallComponent)
	l.lines.New = func() any { b := make([]byte, 0, 2048); return &b }
	return l
}

// Start starts buffering lines.
func (l *Log) Start() { l.w.start() }

// Stop writes out the buffer. It may be called twice.
func (l *Log) Stop() { l.w.stop() }

// Levels returns the levels, which can be changed at run time.
func (l *Log) Levels() *Levels { return l.levels }

// Dropped returns the number of lines lost because they could not be written fast
// enough.
func (l *Log) Dropped() uint64 { return l.w.dropped.Load() }

// Samples returns the log's own metrics, for MetricsConfig.Samples.
func (l *Log) Samples() []Sample {
	return []Sample{{Name: "toolkeep_log_lines_dropped_total", Counter: true, Value: float64(l.Dropped()),
		Help: "Log lines lost because they could not be written as fast as they came."}}
}

// Logger returns the logger of one component, at that component's level.
func (l *Log) Logger(component string) *slog.Logger {
	if l.text {
		return slog.New(&textHandler{log: l, level: l.levels.For(component), component: component})
	}
	h := slog.NewJSONHandler(l.w, &slog.HandlerOptions{Level: l.levels.For(component), ReplaceAttr: l.replace})
	return slog.New(h).With("component", component)
}

// replace renames fields to the names of call lines and cleans text.
func (l *Log) replace(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch a.Key {
		case slog.TimeKey:
			return slog.String("timestamp", a.Value.Time().UTC().Format(stampFormat))
		case slog.MessageKey:
			a.Key = "message"
		case slog.LevelKey:
			return a
		}
	}
	a.Value = l.cleanValue(a.Value)
	return a
}

// cleanValue takes secrets out of a text or of what becomes one.
func (l *Log) cleanValue(v slog.Value) slog.Value {
	switch {
	case l.clean == nil:
	case v.Kind() == slog.KindString:
		return slog.StringValue(l.clean.Clean(v.String()))
	case v.Kind() == slog.KindAny:
		return l.cleanAny(v)
	}
	return v
}

// cleanAny converts a value that contains a secret in any of its forms to cleaned text.
func (l *Log) cleanAny(v slog.Value) slog.Value {
	if err, ok := v.Any().(error); ok {
		return slog.StringValue(l.clean.Clean(err.Error()))
	}
	for _, text := range []string{fmt.Sprintf("%+v", v.Any()), asJSON(v.Any())} {
		if clean := l.clean.Clean(text); clean != text {
			return slog.StringValue(clean)
		}
	}
	return v
}

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(raw)
}
