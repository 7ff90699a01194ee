package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/toolkeep/toolkeep"
)

// clockFormat is the time of a text line, local: text is for who watches.
const clockFormat = "15:04:05.000"

// appendHead begins a text line, such as "15:04:05.000 WARN  store: ".
func appendHead(b []byte, at time.Time, lv slog.Level, component string) []byte {
	b = append(at.Local().AppendFormat(b, clockFormat), ' ')
	b = append(b, lv.String()...)
	for n := len(lv.String()); n < len("ERROR"); n++ {
		b = append(b, ' ')
	}
	return append(append(append(b, ' '), component...), ": "...)
}

// appendPair appends " key=value", quoted where the value is more than one plain word.
func appendPair(b []byte, key, value string, most int) []byte {
	b = append(append(append(b, ' '), key...), '=')
	return appendWord(b, value, most, " =")
}

// appendWord appends at most most bytes of s: as it is, or as a JSON string where it is empty or holds a quote, one of the
// characters in parts, or one that a terminal does not print.
func appendWord(b []byte, s string, most int, parts string) []byte {
	plain := len(s) > 0 && len(s) <= most
	for _, r := range s {
		plain = plain && r != '"' && r != unicode.ReplacementChar && unicode.IsPrint(r) && !strings.ContainsRune(parts, r)
	}
	if plain {
		return append(b, s...)
	}
	return appendString(b, s, most)
}

// appendText writes the line of a call for people.
func (l *Log) appendText(b []byte, lv slog.Level, v *toolkeep.Invocation, e *toolkeep.Error) []byte {
	b = appendHead(b, l.stamp(v), lv, CallComponent)
	tool := v.ToolID
	if v.Version != "" {
		tool += "@" + v.Version
	}
	b = appendWord(b, tool, maxText, " ")
	b = append(append(b, ' '), v.State.BC2(v.Code)...)
	b = append(appendMS(append(b, ' '), v.TotalUS), "ms"...)
	for _, f := range [...][2]string{{"agent", v.Subject}, {"tenant", v.Tenant}, {"id", v.ID}, {"code", string(v.Code)},
		{"message", v.Message}, {"cause", l.cause(e)}} {
		if f[1] != "" {
			b = appendPair(b, f[0], f[1], maxText)
		}
	}
	return b
}

// textHandler writes a component's lines for people: time, level, component, message, key=value.
type textHandler struct {
	log       *Log
	level     slog.Leveler
	component string
	group     string // prefix of keys
	attrs     []byte
}

func (h *textHandler) Enabled(_ context.Context, lv slog.Level) bool { return lv >= h.level.Level() }

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	b := appendHead(make([]byte, 0, 256), r.Time, r.Level, h.component)
	b = appendWord(b, h.log.cleanValue(slog.StringValue(r.Message)).String(), maxCause, "=")
	b = append(b, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		b = h.append(b, h.group, a)
		return true
	})
	_, err := h.log.w.Write(append(b, '\n'))
	return err
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		with.attrs = h.append(with.attrs, h.group, a)
	}
	return &with
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	with := *h
	with.group += name + "."
	return &with
}

func (h *textHandler) append(b []byte, group string, a slog.Attr) []byte {
	a.Value = a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
		return b
	case a.Value.Kind() == slog.KindGroup:
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, a := range a.Value.Group() {
			b = h.append(b, group, a)
		}
		return b
	}
	return appendPair(b, group+a.Key, h.log.cleanValue(a.Value).String(), maxCause)
}
