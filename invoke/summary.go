package invoke

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/redact"
)

const (
	maxSummary     = 200      // characters of a result in its call's record
	beyondSummary  = 64       // characters more are looked at, so that personal data is not cut before it is found
	summaryBytes   = 2 << 10  // of a result that are looked at for that
	maxQuoted      = 8 << 10  // bytes of arguments as they were sent, beyond which a record has their hash alone
	maxPriorTools  = 10       // of a session in a call's record
	priorBytes     = 16 << 20 // of all sessions whose tools are known
	sessionCounted = 200      // bytes that a session counts beside its ids and those of its tools
)

// summary returns the beginning of a result that was redacted, in one line: of a text its words, else
// JSON. Characters that are not seen are left out, and personal data is replaced.
func summary(output []byte, personal redact.Personal) string {
	output = output[:min(len(output), summaryBytes)]
	if len(output) > 0 && output[0] == '"' {
		output, _ = jsontext.AppendUnquote(make([]byte, 0, len(output)), output) // of a text that was cut all but its last character
	}
	var room [maxSummary + beyondSummary + utf8.UTFMax]byte
	b := room[:0]
	for n := 0; len(output) > 0 && n <= maxSummary+beyondSummary; {
		if c := output[0]; c > ' ' && c <= '~' {
			b, output = append(b, c), output[1:]
			n++
			continue
		}
		r, size := utf8.DecodeRune(output)
		output = output[size:]
		switch {
		case unicode.IsSpace(r):
			if r = ' '; n == 0 {
				continue
			}
		case r == utf8.RuneError && size == 1, !unicode.IsGraphic(r):
			continue
		}
		b = utf8.AppendRune(b, r)
		n++
	}
	return toolkeep.Clip(personal.Clean(strings.TrimSpace(string(b))), maxSummary)
}

// sessionKey names a session: what a caller calls it is its own alone.
type sessionKey struct{ tenant, subject, person, session string }

// priorTools has the last tools of each session on this node, oldest first. A list is not changed after
// it was put there.
type priorTools struct {
	sessions *otter.Cache[sessionKey, []string]
}

func newPriorTools() *priorTools {
	return &priorTools{otter.Must(&otter.Options[sessionKey, []string]{MaximumWeight: priorBytes,
		Weigher: func(k sessionKey, tools []string) uint32 {
			n := sessionCounted + len(k.tenant) + len(k.subject) + len(k.person) + len(k.session)
			for _, t := range tools {
				n += len(t)
			}
			return uint32(n) // ids are at most 4 KiB each
		}})}
}

// add returns the tools of the session before this call, and adds its own.
func (t *priorTools) add(row *toolkeep.Invocation) (before []string) {
	if row.Session == "" {
		return nil
	}
	t.sessions.Compute(sessionKey{row.Tenant, row.Subject, row.OnBehalf, row.Session}, func(old []string, _ bool) ([]string, otter.ComputeOp) {
		before = old
		tools := make([]string, 0, maxPriorTools)
		tools = append(tools, old[max(0, len(old)-maxPriorTools+1):]...)
		return append(tools, row.ToolID), otter.WriteOp
	})
	return before
}

// summarise adds to the record of a call that was carried out what its session did before, and to that
// of one that succeeded the beginning of its result.
func (p *Pipeline) summarise(a *activeCall, res *toolkeep.Result) {
	p.quoteArguments(a)
	if a.tool == nil || a.row.State == toolkeep.CallRefused {
		return
	}
	a.row.PriorTools = p.prior.add(&a.row)
	if a.row.State == toolkeep.CallSucceeded && res != nil && !p.NoSummaries && !hidesFields(a.tool.Manifest) {
		a.row.ResultSummary = summary(res.Output, p.Personal)
	}
}

// quoteArguments adds to the record of a call its arguments: those that its hash is of, or of a call that was
// refused before they were valid those that it was sent with.
func (p *Pipeline) quoteArguments(a *activeCall) {
	args := a.arguments
	if a.args != nil && len(a.faults) == 0 {
		args = a.args
	}
	if !p.QuoteArguments || a.tool == nil || len(args) == 0 || a.row.ArgsSize > maxQuoted {
		return
	}
	a.row.Input = canon.Append(nil, p.Personal.CleanValue(p.withSensitive(p.clean(a).From(p.upstreamOf(a.principal, a.tool)), a.tool, args).CleanValue(args)))
}

// hidesFields reports whether a tool's results have sensitive fields: then nothing is quoted from them.
func hidesFields(m *toolkeep.Manifest) bool {
	return m.Result != nil && len(m.Result.SensitiveFields) > 0
}
