package catalog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestRelationships(t *testing.T) {
	parse := func(relationships string) []toolkeep.Fault {
		t.Helper()
		_, err := ParseManifest(fmt.Appendf(nil, `{"schema_version":1,"tool_id":"a.one","version":"1.0.0","description":"x","parameters_schema":{"type":"object"},"execution":{"kind":"builtin"},"relationships":%s}`, relationships))
		if err == nil {
			return nil
		}
		e := toolkeep.AsError(err)
		if e.Code != toolkeep.InvalidManifest {
			t.Fatal(err)
		}
		return e.Details["errors"].([]toolkeep.Fault)
	}
	for _, good := range []string{
		`{}`,
		`{"dependencies":["b.two","b.three@^1.2"],"alternatives":["c.four@>=1 <3"],"pairings":[{"tool_id":"b.two","sequence":"before"},{"tool_id":"b.two","sequence":"after"},{"tool_id":"d.five"}]}`,
		`{"dependencies":["a.one_more","a.One"]}`, // other tools than a.one
	} {
		if faults := parse(good); faults != nil {
			t.Errorf("%s: %+v", good, faults)
		}
	}
	many := `{"alternatives":["b.t0"` + func() (s string) {
		for i := range 100 {
			s += fmt.Sprintf(`,"b.u%d"`, i)
		}
		return s
	}() + `]}`
	for bad, want := range map[string]string{
		`{"dependencies":["two"]}`:                              "/relationships/dependencies/0 reference",
		`{"dependencies":["b.two","B.two"]}`:                    "/relationships/dependencies/1 reference",
		`{"dependencies":["b.two "]}`:                           "/relationships/dependencies/0 reference",
		`{"alternatives":["a.one"]}`:                            "/relationships/alternatives/0 reference",
		`{"alternatives":["a.one@2"]}`:                          "/relationships/alternatives/0 reference",
		`{"alternatives":["b.two@"]}`:                           "/relationships/alternatives/0 range",
		`{"alternatives":["b.two@newest"]}`:                     "/relationships/alternatives/0 range",
		`{"alternatives":["b.two","b.two"]}`:                    "/relationships/alternatives/1 uniqueItems",
		`{"alternatives":[5]}`:                                  "/relationships/alternatives/0 type",
		`{"pairings":[{"sequence":"after"}]}`:                   "/relationships/pairings/0 required",
		`{"pairings":[{"tool_id":"x"}]}`:                        "/relationships/pairings/0/tool_id reference",
		`{"pairings":["b.two"]}`:                                "/relationships/pairings/0 type",
		`{"pairings":[{"tool_id":"b.two","sequence":"later"}]}`: "/relationships/pairings/0/sequence enum",
		`{"pairings":[{"tool_id":"b.two","sequence":"after"},{"tool_id":"b.two","sequence":"after"}]}`: "/relationships/pairings/1/tool_id uniqueItems",
		`{"friends":["b.two"]}`: "/relationships/friends additionalProperties",
		many:                    "/relationships/alternatives maxItems",
	} {
		faults := parse(bad)
		if len(faults) != 1 {
			t.Errorf("%s: %+v", bad, faults)
			continue
		}
		if got := faults[0].Pointer + " " + faults[0].Rule; got != want && !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", bad, got, want)
		}
	}
}
