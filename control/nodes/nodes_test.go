package nodes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/control/nodes"
)

type members []toolkeep.NodeState

func (m members) Live() ([]toolkeep.NodeState, time.Duration) { return m, 2 * time.Second }
func (m members) Names() (names []string, age time.Duration) {
	for _, n := range m {
		names = append(names, n.Name)
	}
	return names, 2 * time.Second
}
func (m members) Owner() string { return "a/1" }

func TestList(t *testing.T) {
	m := members{{Name: "a", Run: "1", Leads: []string{"x"}, Data: []byte(`{"k":1}`)}, {Name: "b", Run: "1"}}
	list, age, err := nodes.List(access.System(), m)
	if err != nil || age != 2*time.Second || len(list) != 2 || !list[0].Self || list[1].Self || list[1].Leads == nil || string(list[0].Facts) != `{"k":1}` {
		t.Errorf("%+v, %s, %v", list, age, err)
	}
	if n := nodes.CountOf(m).Live; n != 2 {
		t.Errorf("health shows %d nodes", n)
	}
	for what, p := range map[string]*toolkeep.Principal{
		"another tenant's administrator": {Tenant: "acme", Permissions: []string{"*"}},
		"an agent":                       {Tenant: access.HomeTenant},
	} {
		if list, _, err := nodes.List(p, m); list != nil || toolkeep.AsError(err).Code != toolkeep.PermissionDenied || !strings.Contains(err.Error(), "default") {
			t.Errorf("%s gets %v, %v", what, list, err)
		}
	}
}
