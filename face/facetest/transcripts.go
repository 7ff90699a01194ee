package facetest

import (
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// reasons are the codes in the records of calls, where the caller is not told them; see Harness.recorded.
var reasons = map[string]toolkeep.Code{"a tool that may not be seen": toolkeep.PermissionDenied, "the exported name of a tool that may not be seen": toolkeep.PermissionDenied}

// transcripts are single calls with everything an answer may contain.
func transcripts() []transcript {
	agent := func(tool, arguments string) Ask { return Ask{As: "agent", Tool: tool, Arguments: arguments} }
	with := func(a Ask, change func(*Ask)) Ask { change(&a); return a }
	hello := agent("face.echo", `{"text":"hello"}`)
	warned := success(`{"text":"hello"}`)
	warned.Version, warned.Warnings = "0.9.0", []toolkeep.Code{toolkeep.ToolDeprecated}
	return []transcript{
		{"success", hello, success(`{"text":"hello"}`)},
		{"the name of an export", agent("face__echo", `{"text":"hello"}`), success(`{"text":"hello"}`)},
		{"numbers stay exact", agent("face.echo", `{"n":9007199254740993}`), success(`{"n":9007199254740993}`)},
		{"text becomes a number where the schema wants one", agent("face.echo", `{"n":"42"}`), success(`{"n":42}`)},
		{"nested values", agent("face.echo", `{"any":{"a":[1,null,{"ü":"é\n\"\u2028<b>"}]}}`), success(`{"any":{"a":[1,null,{"ü":"é\n\"\u2028<b>"}]}}`)},
		{"an empty object", agent("face.echo", `{}`), success(`{}`)},
		{"no arguments", agent("face.echo", ``), success(`{}`)},
		{"a result that is not an object", agent("face.bare", `{"any":[1,"a",{"b":null}]}`), success(`[1,"a",{"b":null}]`)},
		{"a result that is null", agent("face.bare", `{"any":null}`), success(`null`)},
		{"a result with a member named result", agent("face.bare", `{"any":{"result":1}}`), success(`{"result":1}`)},
		{"a range", with(hello, func(a *Ask) { a.Version = "^1" }), success(`{"text":"hello"}`)},
		{"a deprecated version", with(hello, func(a *Ask) { a.Version = "0.9.0" }), warned},

		{"no key", with(hello, func(a *Ask) { a.As = "" }), refused(toolkeep.Unauthenticated)},
		{"a wrong key", with(hello, func(a *Ask) { a.As = "stranger" }), refused(toolkeep.Unauthenticated)},
		{"another agent", with(hello, func(a *Ask) { a.Agent = "somebody" }), refused(toolkeep.PermissionDenied)},
		{"a token that cannot be checked", with(hello, func(a *Ask) { a.Token = "e30.e30.e30" }), refused(toolkeep.TokenInvalid)},
		{"a token that allows the call", with(hello, func(a *Ask) { a.Token = "@face.echo" }), success(`{"text":"hello"}`)},
		{"a token for another tool", with(hello, func(a *Ask) { a.Token = "@face.bare" }), refused(toolkeep.TokenScopeMismatch)},
		{"another's token", with(hello, func(a *Ask) { a.As, a.Token = "admin", "@face.echo" }), refused(toolkeep.TokenScopeMismatch)},
		{"a signature that cannot be checked", with(hello, func(a *Ask) { a.Signature = strings.Repeat("ab", 32) }), refused(toolkeep.SignatureInvalid)},

		{"an unknown tool", agent("face.nowhere", `{}`), refused(toolkeep.ToolNotFound)},
		{"a tool that may not be seen", agent("face.risky", `{}`), refused(toolkeep.ToolNotFound)},
		{"the exported name of a tool that may not be seen", agent("face__risky", `{}`), refused(toolkeep.ToolNotFound)},
		{"a tool that may be seen and not called", with(hello, func(a *Ask) { a.As = "auditor" }), refused(toolkeep.PermissionDenied)},
		{"an unknown version", with(hello, func(a *Ask) { a.Version = "7.7.7" }), refused(toolkeep.ToolVersionNotFound)},
		{"a range that nothing satisfies", with(hello, func(a *Ask) { a.Version = "^7" }), refused(toolkeep.VersionConflict)},
		{"a blocked version", agent("face.blocked", `{}`), refused(toolkeep.ToolBlocked)},
		{"no tool", agent("", `{}`), refused(toolkeep.MalformedRequest)},

		{"a missing parameter", agent("face.strict", `{}`), refused(toolkeep.MissingParameter, faults(Fault{"", "required"}))},
		{"a wrong type", agent("face.strict", `{"text":5}`), refused(toolkeep.InvalidParameters, faults(Fault{"/text", "type"}))},
		{"several faults", agent("face.strict", `{"text":"toolong","n":-1}`), refused(toolkeep.InputValidationFailed,
			faults(Fault{"/n", "minimum"}, Fault{"/text", "maxLength"}))},
		{"arguments that are not JSON", with(hello, func(a *Ask) { a.Broken = true }), refused(toolkeep.MalformedRequest)},
		{"a name twice", agent("face.echo", `{"any":{"a":1,"a":2}}`), refused(toolkeep.InvalidEncoding)},
		{"nested too deep", agent("face.echo", `{"any":`+strings.Repeat("[", 80)+strings.Repeat("]", 80)+`}`), refused(toolkeep.InvalidEncoding)},
		{"too large", agent("face.echo", `{"text":"`+strings.Repeat("a", 1_200_000)+`"}`), refused(toolkeep.RequestTooLarge)},
		{"a key that is too long", with(hello, func(a *Ask) { a.Key = strings.Repeat("k", 5000) }), refused(toolkeep.RequestTooLarge)},

		{"a tool that fails", agent("face.fails", `{}`), failed(toolkeep.UpstreamServerError, "error")},
		{"a writing tool that fails", agent("face.writes", `{}`), failed(toolkeep.UpstreamServerError, "error", func(a *Answer) { a.Retryable = false })},
		{"a tool that refuses its arguments", agent("face.client", `{}`), failed(toolkeep.UpstreamClientError, "error")},
		{"a tool that limits", agent("face.limits", `{}`), refused(toolkeep.RateLimitExceeded, wait)},
		{"a destination that is forbidden", agent("face.forbids", `{}`), refused(toolkeep.DestinationForbidden)},
		{"a tool that takes too long", agent("face.slow", `{}`), failed(toolkeep.Timeout, "timeout")},
		{"the caller's timeout", with(agent("face.gate", `{"name":"timeout"}`), func(a *Ask) { a.Timeout = time.Second }), failed(toolkeep.Timeout, "timeout")},
		{"a tool that panics", agent("face.panics", `{}`), refused(toolkeep.InternalError)},
	}
}
