package overlay

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Context is what an agent adds to a tool. It is immutable; nil adds nothing.
type Context struct {
	Credentials map[string]string // name -> secret reference
	Timeout     time.Duration     // per call; 0 is the tool's own
	Attempts    int               // per call; 0 is the tool's own
	PerMinute   int               // calls of the agent on the tool; 0: no limit of its own
	Facts       map[string]string // about the session
}

// Limits of a context.
const (
	MaxBytes = 64 << 10 // of its JSON

	maxMembers = 64
	maxName    = 128
	maxRef     = 1024
	maxFact    = 4096
	maxTimeout = 24 * time.Hour
	maxNumber  = 1_000_000
)

// Scheme is the prefix of manifest references that a context fills.
const Scheme = "context://"

// Within returns the lower of a tool's time limit and the context's.
func (c *Context) Within(d time.Duration) time.Duration {
	if c == nil || c.Timeout == 0 {
		return d
	}
	return min(d, c.Timeout)
}

// AttemptsWithin returns the lower of a tool's number of attempts and the context's.
func (c *Context) AttemptsWithin(n int) int {
	if c == nil || c.Attempts == 0 {
		return n
	}
	return min(n, c.Attempts)
}

// FactsCopy returns a copy of the facts that may be modified; nil if there are none.
func (c *Context) FactsCopy() map[string]string {
	if c == nil || len(c.Facts) == 0 {
		return nil
	}
	return maps.Clone(c.Facts)
}

// Fill returns the reference that replaces a context:// reference of the manifest; references with
// another scheme are returned unchanged.
//
// Errors: E3401 no context has a credential of that name; E3205 the manifest does not list the
// reference under permissions.credentials.
func (c *Context) Fill(m *toolkeep.Manifest, ref string) (string, error) {
	name, ok := strings.CutPrefix(ref, Scheme)
	if !ok {
		return ref, nil
	}
	var to string
	if c != nil {
		to = c.Credentials[name]
	}
	if to == "" {
		return "", refuse(toolkeep.SecretNotFound, "the tool needs the credential %q of the agent's context, and no context has it; set one with `toolkeep context set`", toolkeep.ClipBytes(name, maxName))
	}
	// A manifest without the list may use all secrets it names itself, but a context's reference
	// comes from someone else and must be listed.
	if m.Permissions == nil || !slices.Contains(m.Permissions.Credentials, to) {
		return "", refuse(toolkeep.CredentialDenied, "the agent's context has for the credential %q a reference that the tool's permissions.credentials does not list", toolkeep.ClipBytes(name, maxName))
	}
	return to, nil
}

// Changes reports whether the result of a call may depend on the context; Digest identifies that
// part. Limits do not change results.
func (c *Context) Changes() bool { return c != nil && len(c.Credentials)+len(c.Facts) > 0 }

// Digest is SHA-256 over credentials and facts.
func (c *Context) Digest() [32]byte {
	return sha256.Sum256(canon.Append(nil, map[string]any{"credentials": texts(c.Credentials), "facts": texts(c.Facts)}))
}

func texts(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Notes describes, without values, what the context does to a call of the tool; for explain.
func (c *Context) Notes(m *toolkeep.Manifest, attempts int) []string {
	if c == nil {
		return nil
	}
	var notes []string
	limit := func(what, unit string, mine, tools int64) {
		switch {
		case mine == 0:
		case mine < tools:
			notes = append(notes, what+" lowered to "+strconv.FormatInt(mine, 10)+unit)
		default:
			notes = append(notes, what+" of "+strconv.FormatInt(mine, 10)+unit+" has no effect, the tool's own is "+strconv.FormatInt(tools, 10)+unit)
		}
	}
	limit("timeout", " ms", c.Timeout.Milliseconds(), m.Timeout().Milliseconds())
	limit("retry_max_attempts", "", int64(c.Attempts), int64(attempts))
	if c.PerMinute > 0 {
		notes = append(notes, "rate_limit_per_minute is "+strconv.Itoa(c.PerMinute))
	}
	list := func(what string, names map[string]string) {
		if len(names) > 0 {
			notes = append(notes, what+" "+strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
	}
	list("credentials", c.Credentials)
	list("facts", c.Facts)
	return notes
}

// join merges contexts: of credentials and facts the first counts, of limits the lowest.
func join(all ...*Context) *Context {
	var out *Context
	for _, c := range all {
		if c == nil {
			continue
		}
		if out == nil {
			out = c
			continue
		}
		out = &Context{
			Credentials: merge(out.Credentials, c.Credentials), Facts: merge(out.Facts, c.Facts),
			Timeout: lower(out.Timeout, c.Timeout), Attempts: lower(out.Attempts, c.Attempts), PerMinute: lower(out.PerMinute, c.PerMinute),
		}
	}
	return out
}

func merge(first, second map[string]string) map[string]string {
	if len(first) == 0 {
		return second
	}
	out := maps.Clone(first)
	for k, v := range second {
		if _, has := out[k]; !has {
			out[k] = v
		}
	}
	return out
}

func lower[N int | time.Duration](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

var (
	credentialName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	reference      = regexp.MustCompile(`^(secret|vault|env|file)://[^\x00-\x20\x7f]+$`)
)

// reader collects the faults of a document.
type reader struct{ faults []toolkeep.Fault }

func (r *reader) fault(pointer, rule, message string) {
	r.faults = append(r.faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: message})
}

// Parse reads the JSON form:
//
//	{"credentials": {"api_token": "vault://kv/app#token"},
//	 "config": {"timeout": 30000, "retry_max_attempts": 3, "rate_limit_per_minute": 60},
//	 "session_context": {"project_id": "project_456"}}
//
// strict refuses unknown members; a remote service may send more than this build understands. E3310
// with details.errors.
func Parse(raw []byte, strict bool) (*Context, error) {
	tree, err := canon.ParseObject(raw, canon.Limits{Bytes: MaxBytes, Depth: 4, Properties: 1000})
	if err != nil {
		return nil, err
	}
	r, c := &reader{}, &Context{}
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if tree[key] == nil {
			continue
		}
		switch at := canon.Pointer(key); key {
		case "credentials":
			c.Credentials = r.credentials(at, tree[key])
		case "config":
			r.config(at, tree[key], c, strict)
		case "session_context":
			c.Facts = r.facts(at, tree[key])
		default:
			if strict {
				r.fault(at, "unknown", "a context has credentials, config and session_context")
			}
		}
	}
	if len(r.faults) > 0 {
		e := toolkeep.FaultsError(toolkeep.InputValidationFailed, "the context is not valid: "+r.faults[0].Pointer+": "+r.faults[0].Message, r.faults)
		return nil, e
	}
	return c, nil
}

// object calls each for the members of an object, in order.
func (r *reader) object(at string, v any, each func(here, name string, v any)) {
	m, ok := v.(map[string]any)
	if !ok {
		r.fault(at, "type", "must be an object")
		return
	}
	if len(m) > maxMembers {
		r.fault(at, "maxProperties", "has "+strconv.Itoa(len(m))+" members; at most 64 are allowed")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := at + canon.Pointer(name)
		if len(name) > maxName || name == "" {
			r.fault(at, "propertyNames", "a name must have 1 to 128 bytes")
			continue
		}
		each(here, name, m[name])
	}
}

func (r *reader) credentials(at string, v any) map[string]string {
	out := map[string]string{}
	r.object(at, v, func(here, name string, v any) {
		ref, _ := v.(string)
		switch {
		case !credentialName.MatchString(name):
			r.fault(here, "pattern", "the name of a credential has letters, digits, _, - and . only")
		case len(ref) > maxRef || !reference.MatchString(ref):
			// The text is not shown: a secret put here by mistake must not reach a log.
			r.fault(here, "format", "must be a reference such as secret://name, vault://path#key, env://NAME or file:///path, and never the secret itself")
		}
		out[name] = ref
	})
	return out
}

func (r *reader) config(at string, v any, c *Context, strict bool) {
	r.object(at, v, func(here, name string, v any) {
		whole := func(most int64) int64 {
			n, ok := v.(json.Number)
			i, err := n.Int64()
			if !ok || err != nil || i < 1 || i > most {
				r.fault(here, "range", "must be a whole number from 1 to "+strconv.FormatInt(most, 10))
			}
			return i
		}
		switch name {
		case "timeout":
			c.Timeout = time.Duration(whole(maxTimeout.Milliseconds())) * time.Millisecond
		case "retry_max_attempts":
			c.Attempts = int(whole(maxNumber))
		case "rate_limit_per_minute":
			c.PerMinute = int(whole(maxNumber))
		default:
			if strict {
				r.fault(here, "unknown", "config has timeout (ms), retry_max_attempts and rate_limit_per_minute")
			}
		}
	})
}

func (r *reader) facts(at string, v any) map[string]string {
	out := map[string]string{}
	r.object(at, v, func(here, name string, v any) {
		var text string
		switch t := v.(type) {
		case nil:
			return
		case string:
			text = t
		case json.Number, bool:
			text = string(canon.Append(nil, t))
		default:
			r.fault(here, "type", "a fact is a text, a number or true or false")
			return
		}
		if len(text) > maxFact || strings.ContainsRune(text, 0) {
			r.fault(here, "maxLength", "a fact has at most 4096 bytes and no NUL")
			return
		}
		out[name] = text
	})
	return out
}

// JSON returns the form that Parse reads.
func (c *Context) JSON() []byte {
	out := map[string]any{}
	if len(c.Credentials) > 0 {
		out["credentials"] = texts(c.Credentials)
	}
	config := map[string]any{}
	number := func(name string, n int64) {
		if n > 0 {
			config[name] = json.Number(strconv.FormatInt(n, 10))
		}
	}
	number("timeout", c.Timeout.Milliseconds())
	number("retry_max_attempts", int64(c.Attempts))
	number("rate_limit_per_minute", int64(c.PerMinute))
	if len(config) > 0 {
		out["config"] = config
	}
	if len(c.Facts) > 0 {
		out["session_context"] = texts(c.Facts)
	}
	return canon.Append(nil, out)
}

func refuse(code toolkeep.Code, format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(code, format, args...)
	e.NothingSent = true
	return e
}
