package rest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

type fakeNodes []toolkeep.NodeState

func (f fakeNodes) Live() ([]toolkeep.NodeState, time.Duration) { return f, 1500 * time.Millisecond }
func (f fakeNodes) Names() (names []string, age time.Duration) {
	for _, n := range f {
		names = append(names, n.Name)
	}
	return names, 1500 * time.Millisecond
}
func (f fakeNodes) Owner() string { return "a/1" }

func TestListNodes(t *testing.T) {
	s := newSystem()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 3600))
	s.Nodes = fakeNodes{{Name: "a", Run: "1", Version: "1.2.3", URL: "https://a:1", StartedAt: at, SeenAt: at, Leads: []string{"x"}, Data: []byte(`{"k":[1]}`)},
		{Name: "b", Run: "7", StartedAt: at, SeenAt: at}}
	w := s.do(t, "GET", "/api/v1/admin/nodes", "", "Authorization: Bearer operator")
	wantStatus(t, w, 200)
	var want, got any
	if err := json.Unmarshal([]byte(`{"age_ms":1500,"nodes":[
		{"name":"a","self":true,"version":"1.2.3","url":"https://a:1","started_at":"2026-03-01T11:00:00Z","seen_at":"2026-03-01T11:00:00Z","leads":["x"],"facts":{"k":[1]}},
		{"name":"b","version":"","started_at":"2026-03-01T11:00:00Z","seen_at":"2026-03-01T11:00:00Z","leads":[],"facts":{}}]}`), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("\n got %s\nwant %s", a, b)
	}
	// Nodes serve all tenants: an administrator of another does not see them.
	problem(t, s.do(t, "GET", "/api/v1/admin/nodes", ""), toolkeep.PermissionDenied)
}
