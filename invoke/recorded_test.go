package invoke_test

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/invoke"
)

// TestRecordsOfRefusedCallsAreBounded: whatever a caller sends, the record of its refusal is
// small and holds neither values nor names that the tool does not define.
func TestRecordsOfRefusedCallsAreBounded(t *testing.T) {
	const private = "my-private-word"
	h := newHarness(t)
	h.tool("plain")
	h.tool("deep", func(m *toolkeep.Manifest) {
		m.ParametersSchema = []byte(`{"type":"object","properties":{"list":{"type":"array","items":{"type":"object","additionalProperties":{"type":"integer"}}},"n":{"type":"integer"}},"required":["n"]}`)
	})
	names := make([]string, 900)
	for i := range names {
		names[i] = fmt.Sprintf(`"%s-%d%s":1`, private, i, strings.Repeat("x", 1000))
	}
	many := strings.Join(names, ",")
	faults := make([]toolkeep.Fault, 900)
	for i := range faults {
		faults[i] = toolkeep.Fault{Pointer: fmt.Sprint("/", private, i), Rule: "json", Message: private + " is not JSON"}
	}
	for name, x := range map[string]struct {
		call toolkeep.Call
		want string // in the recorded details
	}{
		"many unknown names": {toolkeep.Call{Tool: "std.plain", Arguments: []byte("{" + many + "}")}, `"pointer":"/*"`},
		"a long name":        {toolkeep.Call{Tool: "std.plain", Arguments: []byte(`{"` + private + strings.Repeat("n", 500_000) + `":1}`)}, `"pointer":"/*"`},
		"a value":            {toolkeep.Call{Tool: "std.plain", Arguments: []byte(`{"n":"` + private + `"}`)}, `"pointer":"/n","rule":"type"`},
		"names of a map":     {toolkeep.Call{Tool: "std.deep", Arguments: []byte(`{"n":1,"list":[{},{"` + private + `":"x"}]}`)}, `"pointer":"/list/1/*","rule":"type"`},
		"the face's faults":  {toolkeep.Call{Tool: "std.plain", Fault: toolkeep.FaultsError(toolkeep.MalformedRequest, private, faults)}, `"pointer":"/*","rule":"json"`},
		"the face's details": {toolkeep.Call{Tool: "std.plain", Fault: toolkeep.NewError(toolkeep.MalformedRequest, "bad").With("field", strings.Repeat("x", 1<<20)).With("n", 1)}, `{"n":1}`},
		"a name sent twice":  {toolkeep.Call{Tool: "std.plain", Arguments: []byte(`{"` + private + `":1,"` + private + `":2}`)}, `"pointer":"/*"`},
		"no such tool":       {toolkeep.Call{Tool: "std." + strings.Repeat("y", 4000), Range: strings.Repeat("1", 4000)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.call(&x.call)
			if err == nil {
				t.Fatal("the call was not refused")
			}
			row := h.row(err.InvocationID)
			if n := len(row.Details) + len(row.Message) + len(row.ToolID) + len(row.Range); n > 5_000 {
				t.Errorf("the record holds %d bytes of it: %.200s %.200s", n, row.Message, row.Details)
			}
			if !strings.Contains(string(row.Details), x.want) {
				t.Errorf("recorded %.300s, want %s", row.Details, x.want)
			}
			if strings.Contains(row.Message+string(row.Details), private) {
				t.Errorf("recorded what the caller sent: %.200s %.300s", row.Message, row.Details)
			}
		})
	}
}

// TestResultWithoutItsOutcome tests that a result says where the record has not what the tool brought back.
func TestResultWithoutItsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		row  toolkeep.Invocation
		want bool
	}{
		"stored":         {toolkeep.Invocation{Output: []byte("1"), OutputSize: 1}, false},
		"none":           {toolkeep.Invocation{}, false},
		"not stored":     {toolkeep.Invocation{OutputSize: 1}, true},
		"erased":         {toolkeep.Invocation{Withheld: toolkeep.Erased}, true},
		"failed":         {toolkeep.Invocation{Code: toolkeep.UpstreamTimeout}, false},
		"failed, erased": {toolkeep.Invocation{Code: toolkeep.UpstreamTimeout, Withheld: toolkeep.Unreadable}, true},
	} {
		if got := new(invoke.Pipeline).Result(&c.row).NoOutcome; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRecordHasTheCertificate: the record of a call, also one that is refused or waits, names the client certificate of its connection.
func TestRecordHasTheCertificate(t *testing.T) {
	h := newHarness(t)
	h.tool("read")
	caller := *alice
	caller.Certificate = &x509.Certificate{Raw: []byte("der")}
	for _, c := range []*toolkeep.Call{{Tool: "std.read"}, {Tool: "std.read", Async: true}, {Tool: "std.none"}} {
		id := ""
		res, err := h.pipeline.Invoke(t.Context(), &caller, c)
		if err != nil {
			id = toolkeep.AsError(err).InvocationID
		} else {
			id = res.InvocationID
		}
		h.work()
		if row := h.row(id); row.Certificate != canon.Digest([]byte("der")) {
			t.Errorf("%s: %s has %q", c.Tool, row.State, row.Certificate)
		}
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.read"})
	if err != nil || h.row(res.InvocationID).Certificate != "" {
		t.Errorf("%v: a certificate that was not shown", err)
	}
}
