package breaker

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestIgnoredErrors: a manifest's list takes the place of that of the settings, an empty one too; an upstream's breaker has that of
// the settings. What is ignored is no success either, and so it is with probes.
func TestIgnoredErrors(t *testing.T) {
	t.Parallel()
	settings := quick()
	var others []toolkeep.Code
	if settings.Ignore, others = CodesOf([]toolkeep.Code{toolkeep.NetworkError, toolkeep.PermissionDenied, toolkeep.GRPCError}); !slices.Equal(others, []toolkeep.Code{toolkeep.PermissionDenied}) {
		t.Errorf("%v never count", others)
	}
	for name, tt := range map[string]struct {
		spec                *toolkeep.BreakerSpec
		network, grpc, slow State // after failures with these codes
	}{
		"settings": {nil, Closed, Closed, Open},
		"own":      {&toolkeep.BreakerSpec{IgnoreErrors: []toolkeep.Code{toolkeep.DBTimeout}}, Open, Open, Closed},
		"none":     {&toolkeep.BreakerSpec{IgnoreErrors: []toolkeep.Code{}}, Open, Open, Open},
		"left out": {&toolkeep.BreakerSpec{Window: "count"}, Closed, Closed, Open},
	} {
		for code, want := range map[toolkeep.Code]State{toolkeep.NetworkError: tt.network, toolkeep.GRPCError: tt.grpc, toolkeep.DBTimeout: tt.slow} {
			s := New(Config{Rule: &settings})
			for range 20 {
				if a, err := s.Of(&toolkeep.Tool{ID: "a.b", Manifest: &toolkeep.Manifest{Breaker: tt.spec}}, "host:x").Take(t.Context()); err == nil {
					a.With(code)
					a.Done(Failed, Failed)
				}
			}
			for range 20 {
				s.Failed(&toolkeep.Tool{ID: "a.probed", Manifest: &toolkeep.Manifest{Breaker: tt.spec}}, code, time.Millisecond)
			}
			if probed, _ := s.Get("", "tool:a.probed"); probed.State != want || want == Closed && probed.Calls != 0 {
				t.Errorf("%s, %s: the breaker of the probed tool is %s with %d calls", name, code, probed.State, probed.Calls)
			}
			tool, _ := s.Get("", "tool:a.b")
			host, _ := s.Get("", "host:x")
			if tool.State != want || want == Closed && tool.Calls != 0 || code != toolkeep.DBTimeout && host.State != Closed {
				t.Errorf("%s, %s: the tool's breaker is %s with %d calls, the upstream's %s", name, code, tool.State, tool.Calls, host.State)
			}
		}
	}
}

// TestCounted: the contract lists what can be ignored, and all of it counts for some errors.
func TestCounted(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../contracts/manifest.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var contract struct {
		Properties struct {
			Breaker struct {
				Properties struct {
					Ignore struct {
						Items struct{ Enum []toolkeep.Code }
					} `json:"ignore_errors"`
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &contract); err != nil {
		t.Fatal(err)
	}
	if listed := contract.Properties.Breaker.Properties.Ignore.Items.Enum; !slices.Equal(listed, Counted[:]) {
		t.Errorf("contracts/manifest.schema.json lists %v, breakers count %v", listed, Counted)
	}
	for _, c := range Counted {
		if tool, _ := Counts(toolkeep.NewError(c, "x").With("grpc_code", "UNKNOWN")); !tool {
			t.Errorf("%s does not count", c)
		}
	}
	if len(Counted) != len(failed)+1 {
		t.Error("a code of failed cannot be ignored")
	}
}
