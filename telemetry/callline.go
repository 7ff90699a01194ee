package telemetry

import (
	"encoding/hex"
	"log/slog"
	"math"
	"strconv"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

const (
	stampFormat = "2006-01-02T15:04:05.000Z07:00"
	// External text in a line is cut to these many bytes.
	maxText  = 512
	maxCause = 2048
	// Larger buffers are not kept for the next call.
	maxKept = 16 << 10
)

// Called writes the log line of a call; see Observer. Levels: ERROR for a failed tool
// and for a call that was not permitted, WARN for other refusals, INFO for everything
// else.
func (l *Log) Called(v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, durations []time.Duration) {
	lv := callLevel(v)
	if lv < l.calls.Level() {
		return
	}
	b := l.lines.Get().(*[]byte)
	line := (*b)[:0]
	if l.text {
		line = l.appendText(line, lv, v, e)
	} else {
		line = l.appendJSON(line, lv, v, t, e, durations)
	}
	line = append(line, '\n')
	_, _ = l.w.Write(line) // never fails
	if cap(line) <= maxKept {
		*b = line
		l.lines.Put(b)
	}
}

func callLevel(v *toolkeep.Invocation) slog.Level {
	switch v.State {
	case toolkeep.CallFailed, toolkeep.CallUnknown:
		return slog.LevelError
	case toolkeep.CallExpired:
		return slog.LevelWarn
	case toolkeep.CallRefused:
		if v.Code.Info().BC6 == "UNAUTHORIZED" || v.Code.Away() {
			return slog.LevelError
		}
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func (l *Log) appendJSON(b []byte, lv slog.Level, v *toolkeep.Invocation, t *toolkeep.Tool, e *toolkeep.Error, durations []time.Duration) []byte {
	b = append(b, `{"timestamp":"`...)
	b = l.stamp(v).AppendFormat(b, stampFormat)
	b = append(b, `","level":"`...)
	b = append(b, lv.String()...)
	b = append(b, `","component":"`+CallComponent+`","event":"`...)
	b = append(b, v.EventType()...)
	b = append(b, '"')
	if id := toolkeep.TraceID(v.Traceparent); id != "" {
		b = field(b, "trace_id", id)
	}
	b = appendRequest(b, v)
	b = appendTool(b, v, t)
	b = appendExecution(b, v)
	b = append(b, `,"inputs":{"inputs_hash":"sha256:`...)
	b = hex.AppendEncode(b, v.ArgsHash[:])
	b = append(b, `","inputs_size_bytes":`...)
	b = strconv.AppendInt(b, int64(v.ArgsSize), 10)
	b = append(b, '}')
	b = appendOutputs(b, v)
	b = append(b, `,"metrics":{"execution_time_ms":`...)
	b = appendMS(b, v.ToolUS)
	b = append(b, `,"overhead_ms":`...)
	b = appendMS(b, max(v.TotalUS-v.ToolUS, 0))
	b = append(b, `,"cost_usd":`...)
	b = appendFloat(b, v.CostUSD)
	b = number(b, "bytes_sent", v.BytesSent)
	b = number(b, "bytes_received", v.BytesRecv)
	b = append(b, '}')
	b = l.appendErrors(b, v, e)
	return append(appendSecurity(b, v, durations), '}')
}

func (l *Log) stamp(v *toolkeep.Invocation) time.Time {
	if v.EndedAt.IsZero() {
		return l.clock().UTC()
	}
	return v.EndedAt.UTC()
}

func appendRequest(b []byte, v *toolkeep.Invocation) []byte {
	b = append(b, `,"request_context":{"request_id":`...)
	b = appendString(b, v.ID, maxText)
	b = field(b, "agent_id", v.Subject)
	b = field(b, "tenant_id", v.Tenant)
	b = optional(b, "on_behalf_of", v.OnBehalf)
	b = optional(b, "actor_id", v.Actor)
	b = optional(b, "session_id", v.Session)
	b = optional(b, "plan_id", v.Plan)
	b = optional(b, "task_id", v.Task)
	b = optional(b, "parent_id", v.Parent)
	b = optional(b, "face", v.Face)
	return append(b, '}')
}

func appendTool(b []byte, v *toolkeep.Invocation, t *toolkeep.Tool) []byte {
	id := v.ToolID
	if t != nil {
		id = t.ID
	}
	b = append(b, `,"tool_context":{"tool_id":`...)
	b = appendString(b, id, maxText)
	b = field(b, "tool_version", v.Version)
	b = field(b, "category", v.Category)
	b = field(b, "execution_type", v.Kind)
	return append(b, '}')
}

func appendExecution(b []byte, v *toolkeep.Invocation) []byte {
	b = append(b, `,"execution":{"status":"`...)
	b = append(b, statuses[statusOf(v)]...)
	b = append(b, `","state":"`...)
	b = append(b, v.State...)
	b = append(b, `","duration_ms":`...)
	b = appendMS(b, v.TotalUS)
	b = boolean(b, "cache_hit", v.Cached)
	b = number(b, "attempt", int64(v.Attempts))
	b = number(b, "retry_count", int64(max(v.Attempts-1, 0)))
	if v.Async {
		b = boolean(b, "async", true)
	}
	if v.Replayed {
		b = boolean(b, "replayed", true)
	}
	b = optional(b, "call_id", v.CallID)
	return append(b, '}')
}

func appendOutputs(b []byte, v *toolkeep.Invocation) []byte {
	if v.State != toolkeep.CallSucceeded {
		return append(b, `,"outputs":null`...)
	}
	b = append(b, `,"outputs":{"result_size_bytes":`...)
	b = strconv.AppendInt(b, int64(v.OutputSize), 10)
	b = append(b, `,"output_format":"json"`...)
	b = boolean(b, "truncated", v.Truncated)
	return append(b, '}')
}

// appendErrors writes the caller's error and, for the operator, the cause.
func (l *Log) appendErrors(b []byte, v *toolkeep.Invocation, e *toolkeep.Error) []byte {
	if v.Code == "" {
		return append(b, `,"errors":null`...)
	}
	info := v.Code.Info()
	b = append(b, `,"errors":{"code":`...)
	b = appendString(b, string(v.Code), maxText)
	b = field(b, "name", info.Name)
	b = field(b, "class", info.Class)
	b = append(b, `,"message":`...)
	b = appendString(b, v.Message, maxCause)
	b = boolean(b, "retryable", v.Retryable)
	if v.RetryS > 0 {
		b = number(b, "retry_after_s", int64(v.RetryS))
	}
	if cause := l.cause(e); cause != "" {
		b = append(b, `,"cause":`...)
		b = appendString(b, cause, maxCause)
	}
	return append(b, '}')
}

func (l *Log) cause(e *toolkeep.Error) string {
	if e == nil || e.Cause == nil {
		return ""
	}
	s := e.Cause.Error()
	if l.clean != nil {
		s = l.clean.Clean(s)
	}
	return s
}

func appendSecurity(b []byte, v *toolkeep.Invocation, durations []time.Duration) []byte {
	b = append(b, `,"security":{"auth_type":`...)
	if v.KeyID != "" {
		b = append(b, `"api_key"`...)
		b = field(b, "key_id", v.KeyID)
	} else {
		b = append(b, `null`...)
	}
	if len(durations) > stepValidate {
		b = append(b, `,"permission_check_ms":`...)
		b = appendMS(b, durations[stepAuthorise].Microseconds())
		b = append(b, `,"input_validation_ms":`...)
		b = appendMS(b, durations[stepValidate].Microseconds())
	}
	return append(b, '}')
}

func field(b []byte, name, value string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendString(b, value, maxText)
}

func optional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return field(b, name, value)
}

func number(b []byte, name string, n int64) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendInt(b, n, 10)
}

func boolean(b []byte, name string, v bool) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendBool(b, v)
}

// appendMS writes microseconds as milliseconds with three decimals.
func appendMS(b []byte, us int64) []byte {
	if us < 0 {
		us = 0
	}
	b = strconv.AppendInt(b, us/1000, 10)
	r := us % 1000
	return append(b, '.', byte('0'+r/100), byte('0'+r/10%10), byte('0'+r%10))
}

func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

// appendString writes a JSON string of at most max bytes of s. Invalid UTF-8 becomes
// U+FFFD; what does not print is escaped, so that no viewer breaks a line, moves its cursor or turns the direction.
func appendString(b []byte, s string, max int) []byte {
	cut := false
	if len(s) > max {
		for max > 0 && !utf8.RuneStart(s[max]) {
			max--
		}
		s, cut = s[:max], true
	}
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf && c != 0x7f {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if !(r == utf8.RuneError && n == 1) && unicode.IsPrint(r) {
				i += n
				continue
			}
			b = append(b, s[start:i]...)
			b = appendEscape(b, r)
			i += n
			start = i
			continue
		}
		b = append(b, s[start:i]...)
		if c == '"' || c == '\\' {
			b = append(b, '\\', c)
		} else {
			b = appendEscape(b, rune(c))
		}
		i++
		start = i
	}
	b = append(b, s[start:]...)
	if cut {
		b = append(b, "…"...)
	}
	return append(b, '"')
}

func appendEscape(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return appendEscape(appendEscape(b, high), low)
	}
	return append(b, '\\', 'u', digits[r>>12&0xf], digits[r>>8&0xf], digits[r>>4&0xf], digits[r&0xf])
}
