package gate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// Every failure's text stands alone: what it is, what the upstream said, what is wrong with which
// argument, what to do.
func TestText(t *testing.T) {
	fault := func(at, why string) toolkeep.Fault { return toolkeep.Fault{Pointer: at, Rule: "type", Message: why} }
	final := func(code toolkeep.Code) *toolkeep.Error {
		e := toolkeep.NewError(code, "it failed")
		e.Retryable = false
		return e
	}
	for _, c := range []struct {
		err  *toolkeep.Error
		want string
	}{
		{toolkeep.NewError(toolkeep.UpstreamClientError, "HTTP 409").With("body", "the seat is taken").With("class", "VALIDATION_ERROR"),
			"E3510 upstream_client_error: HTTP 409\nThe upstream said: the seat is taken\nThe same call will fail again: change the arguments."},
		{toolkeep.NewError(toolkeep.UpstreamClientError, "HTTP 402").With("body", map[string]any{"why": []any{"no money"}}),
			"E3510 upstream_client_error: HTTP 402\nThe upstream said: {\"why\":[\"no money\"]}\nThe same call will probably fail again: change the arguments, or use another tool."},
		{toolkeep.NewError(toolkeep.UpstreamServerError, "HTTP 503").With("body", "upgrading"),
			"E3520 upstream_server_error: HTTP 503 (the same call may succeed later)\nThe upstream said: upgrading"},
		{final(toolkeep.UpstreamServerError), "E3520 upstream_server_error: it failed\nIt is unknown whether the call took effect: check before you repeat it."},
		{toolkeep.NewError(toolkeep.SecretAccessDenied, "HTTP 401").With("body", "token expired"),
			"E3402 secret_access_denied: HTTP 401\nThe upstream said: token expired\nCalling again does not help: an operator has to check the tool's credential."},
		{final(toolkeep.GRPCError).With("grpc_message", "no row").With("grpc_details", []any{map[string]any{"id": 7}}),
			"E3530 grpc_error: it failed\nThe upstream said: no row\nThe upstream said: [{\"id\":7}]\nThe same call will probably fail again: change the arguments, or use another tool."},
		{toolkeep.NewError(toolkeep.MCPError, "the server refused").With("data", map[string]any{"field": "a"}),
			"E3540 mcp_error: the server refused\nThe upstream said: {\"field\":\"a\"}\nThe same call will probably fail again: change the arguments, or use another tool."},
		{toolkeep.FaultsError(toolkeep.InputValidationFailed, "two places", []toolkeep.Fault{fault("/a", "must be a number"), fault("", "needs b")}),
			"E3310 input_validation_failed: two places\n- at /a: must be a number\n- needs b\nCorrect this and call again."},
		{toolkeep.FaultsError(toolkeep.InvalidParameters, "no: must be a number", []toolkeep.Fault{fault("/a", "must be a number")}),
			"E3301 invalid_parameters: no: must be a number\n- at /a: must be a number\nCorrect this and call again."},
		{&toolkeep.Error{Code: toolkeep.InvalidParameters, Message: "no: must be a number (at /a)", FaultSaid: true, Details: map[string]any{"errors": []toolkeep.Fault{fault("/a", "must be a number")}}},
			"E3301 invalid_parameters: no: must be a number (at /a)\nCorrect this and call again."},
		{toolkeep.NewError(toolkeep.InputValidationFailed, "of a record").With("errors", []any{map[string]any{"pointer": "/a", "message": "is missing"}}),
			"E3310 input_validation_failed: of a record\n- at /a: is missing\nCorrect this and call again."},
		{toolkeep.NewError(toolkeep.LoginRequired, "open details.url").With("url", "https://x.example/"), "E3407 login_required: open details.url; details.url is https://x.example/"},
		{toolkeep.NewError(toolkeep.PermissionDenied, "no"), "E3201 permission_denied: no"},
	} {
		if got := Text(c.err); got != c.want {
			t.Errorf("\ngot  %s\nwant %s", got, c.want)
		}
	}
}

// Whatever the details hold, the text has a bound.
func TestTextIsBounded(t *testing.T) {
	long := strings.Repeat("ü", 100_000)
	for _, name := range said {
		if n := len(Text(toolkeep.NewError(toolkeep.MCPError, "no").With(name, long))); n > maxSaid+200 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
	all := toolkeep.NewError(toolkeep.MCPError, "no")
	for _, name := range said {
		all.With(name, strings.Repeat("x", maxSaid/2))
	}
	if n := len(Text(all)); n > maxSaid+300 {
		t.Errorf("%d bytes", n)
	}
	for name, c := range map[string]struct {
		message string
		bound   int // bytes of the lines of faults
	}{
		"short": {"must be a number", toolkeep.MaxFaults * len("\n- at /99: must be a number")},
		"long":  {"must be one of " + strings.Repeat("ü", 1000), maxTextFaults},
		"huge":  {"must be one of " + long, maxTextFaults},
	} {
		var faults []toolkeep.Fault
		for i := range 5000 {
			faults = append(faults, toolkeep.Fault{Pointer: fmt.Sprintf("/%d", i), Message: c.message})
		}
		got := Text(toolkeep.FaultsError(toolkeep.InputValidationFailed, "many", faults))
		shown := strings.Count(got, "\n- at /")
		rest := fmt.Sprintf("\n- and %d more faults\nCorrect this and call again.", 5000-shown)
		if len(got) > c.bound+200 || shown < 5 || !strings.HasSuffix(got, rest) {
			t.Errorf("%s: %d bytes, %d shown, ends %q, want %q", name, len(got), shown, got[len(got)-100:], rest)
		}
	}
}
