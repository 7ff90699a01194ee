package executortest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/redact"
)

// testCredentials searches for every secret of a failed call, in all its possible
// encodings, in everything the executor outputs: the error, the log and messages to the
// caller.
func testCredentials(t *testing.T, h Harness) {
	if len(h.Leaky) == 0 {
		lacking(t, h, "Leaky")
		return
	}
	for _, c := range h.Leaky {
		t.Run(c.Name, func(t *testing.T) {
			w := watch(t, c)
			_, err := h.Executor.Execute(t.Context(), w.execution)
			e := wantCode(t, err, c.Code)
			if e == nil {
				return
			}
			w.look(t, "error", fmt.Sprintf("%s %+v %#v %v", e.Message, e.Details, e.Details, e.Cause))
			for name, v := range e.Details {
				w.look(t, "error's detail "+name, string(canon.Append(nil, v)))
			}
			w.lookAround(t)
		})
	}
}

// testTold: the upstream returns the secret in a successful call. The pipeline redacts
// the result, so the executor must return it as text, not in a form that hides the
// secret, such as a compressed body.
func testTold(t *testing.T, h Harness) {
	if len(h.Told) == 0 {
		lacking(t, h, "Told")
		return
	}
	for _, c := range h.Told {
		t.Run(c.Name, func(t *testing.T) {
			w := watch(t, c)
			out, err := h.Executor.Execute(t.Context(), w.execution)
			if err != nil {
				t.Fatalf("Execute: %v (because of %v)", err, toolkeep.AsError(err).Cause)
			}
			shown, raw := "", ""
			if out.HasValue {
				raw = string(canon.Append(nil, out.Value))
				shown = string(canon.Append(nil, w.secrets.CleanValue(out.Value)))
			} else {
				raw = string(out.Body)
				shown = string(w.secrets.CleanBytes(bytes.Clone(out.Body)))
			}
			if !w.within(raw) && !strings.Contains(raw, redact.Marker) {
				t.Errorf("the answer tells no secret, so that the case shows nothing: %.500s", raw)
			}
			w.look(t, "result", shown+out.ContentType)
			for _, said := range out.Warnings { // not redacted after the executor
				w.look(t, "warning", fmt.Sprintf("%s %+v", said.Message, said.Details))
			}
			w.lookAround(t)
		})
	}
}

// watched is a call with credentials and everything that could expose them.
type watched struct {
	execution *toolkeep.Execution
	secrets   *redact.Secrets
	forms     []string
	log       *recorder
	caller    *listener
}

// watch prepares a call with the pipeline's own redactor and records the default log
// while the test runs. Tests in a package that uses it do not run in parallel.
func watch(t *testing.T, c *Case) *watched {
	t.Helper()
	if len(c.Credentials) == 0 {
		t.Fatal("the case has no credentials")
	}
	w := &watched{execution: execution(c), secrets: redact.NewSecrets(nil), caller: &listener{}}
	for _, cred := range c.Credentials {
		t.Cleanup(w.secrets.Hold(cred.Value))
		w.forms = append(w.forms, forms(cred.Value)...)
	}
	w.execution.Clean, w.execution.Caller = w.secrets, w.caller
	before := slog.Default()
	w.log = &recorder{out: &output{}}
	slog.SetDefault(slog.New(w.log))
	t.Cleanup(func() { slog.SetDefault(before) })
	return w
}

func (w *watched) within(text string) bool {
	for _, form := range w.forms {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

func (w *watched) look(t *testing.T, where, text string) {
	t.Helper()
	for _, form := range w.forms {
		if strings.Contains(text, form) {
			t.Errorf("the %s shows a secret (as %q): %.2000s", where, form, text)
			return
		}
	}
}

// lookAround checks a call's outputs other than its result.
func (w *watched) lookAround(t *testing.T) {
	t.Helper()
	w.look(t, "log", w.log.out.text())
	w.look(t, "progress", w.caller.text())
}

// Log returns a handler for executors with a logger: it writes to the default log at
// the time of each record, which the suite searches.
func Log() slog.Handler { return forward{} }

// forward holds no state, so that it may be created before the suite's part begins.
type forward struct {
	with func(slog.Handler) slog.Handler
}

func (forward) Enabled(context.Context, slog.Level) bool { return true }

func (f forward) Handle(ctx context.Context, r slog.Record) error {
	h := slog.Default().Handler()
	if f.with != nil {
		h = f.with(h)
	}
	return h.Handle(ctx, r)
}

func (f forward) WithAttrs(attrs []slog.Attr) slog.Handler {
	return f.then(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

func (f forward) WithGroup(name string) slog.Handler {
	return f.then(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (f forward) then(next func(slog.Handler) slog.Handler) slog.Handler {
	return forward{func(h slog.Handler) slog.Handler {
		if f.with != nil {
			h = f.with(h)
		}
		return next(h)
	}}
}

// output is text to which goroutines append.
type output struct {
	mu sync.Mutex
	b  strings.Builder
}

func (o *output) add(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(&o.b, format, args...)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// recorder is a slog.Handler that keeps every record, at every level.
type recorder struct{ out *output }

func (*recorder) Enabled(context.Context, slog.Level) bool { return true }

func (r *recorder) Handle(_ context.Context, rec slog.Record) error {
	r.out.add("%s", rec.Message)
	rec.Attrs(func(a slog.Attr) bool { r.attr(a); return true })
	r.out.add("\n")
	return nil
}

// attr writes a value plainly and with all its fields, as handlers may.
func (r *recorder) attr(a slog.Attr) {
	v := a.Value.Resolve().Any()
	r.out.add(" %s=%v %+v", a.Key, v, v)
}

func (r *recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		r.attr(a)
	}
	return r
}

func (r *recorder) WithGroup(name string) slog.Handler { r.out.add(" %s", name); return r }

// listener is a Caller that records its messages.
type listener struct{ output }

func (l *listener) Progress(p toolkeep.Progress) { l.add("%s %s\n", p.Phase, p.Message) }

// forms returns a secret's possible encodings: plain, hex, in URLs, in JSON strings by
// several encoders, and base64, also within a longer text that starts up to two bytes
// earlier.
func forms(secret string) []string {
	b := []byte(secret)
	out := []string{secret, hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)),
		url.QueryEscape(secret), strings.ReplaceAll(url.QueryEscape(secret), "+", "%20"), url.PathEscape(secret),
		strings.ToLower(url.QueryEscape(secret))}
	quoted := string(canon.Append(nil, secret))
	quoted = quoted[1 : len(quoted)-1]
	out = append(out, quoted, strings.ReplaceAll(quoted, "/", `\/`))
	for _, hexDigits := range []string{`\u%04x`, `\u%04X`} {
		all, ascii, html := "", "", ""
		for _, r := range secret {
			units := []rune{r}
			if r > 0xffff {
				units = []rune{0xd800 + (r-0x10000)>>10, 0xdc00 + (r-0x10000)&0x3ff}
			}
			escaped := ""
			for _, u := range units {
				escaped += fmt.Sprintf(hexDigits, u)
			}
			all += escaped
			plain := string(r)
			switch {
			case r == '"' || r == '\\':
				plain = `\` + plain
			case r < ' ' || r == '<' || r == '>' || r == '&':
				plain = escaped
			}
			html += plain
			if r >= utf8.RuneSelf {
				plain = escaped
			}
			ascii += plain
		}
		out = append(out, all, ascii, html)
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		out = append(out, enc.EncodeToString(b))
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for offset := range 3 {
			text := enc.EncodeToString(append(make([]byte, offset), b...))
			// The characters that encode only bytes of the secret.
			from, to := (8*offset+5)/6, 8*(offset+len(b))/6
			if to-from >= 6 {
				out = append(out, text[from:to])
			}
		}
	}
	return out
}
