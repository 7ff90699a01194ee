// Package nodes is what people see of the nodes that share a store.
package nodes

import (
	"encoding/json"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// Members is the node that is asked, among the others; *membership.Members is one.
type Members interface {
	Live() (nodes []toolkeep.NodeState, age time.Duration)
	Names() (names []string, age time.Duration)
	Owner() string
}

// Node is one node that lives.
type Node struct {
	Name      string          `json:"name" doc:"it survives a restart"`
	Self      bool            `json:"self,omitempty" doc:"this node answers"`
	Version   string          `json:"version"`
	URL       string          `json:"url,omitempty" doc:"where other nodes reach it; absent: nowhere"`
	StartedAt time.Time       `json:"started_at" doc:"by the node's clock"`
	SeenAt    time.Time       `json:"seen_at" doc:"by the store's clock"`
	Leads     []string        `json:"leads" doc:"works that it does for all nodes"`
	Facts     json.RawMessage `json:"facts,omitempty" doc:"what nodes compare"`
}

// Count is what health shows of the nodes, since anybody may read it.
type Count struct {
	Live int `json:"live"`
}

// List is the nodes that live, by name, and the age of this knowledge: seconds while the
// store answers. E3201 for all but operators of the home tenant, since nodes serve all
// tenants.
func List(p *toolkeep.Principal, m Members) ([]Node, time.Duration, error) {
	if p.Tenant != access.HomeTenant || !p.May(toolkeep.PermOperate) {
		return nil, 0, toolkeep.NewError(toolkeep.PermissionDenied, "the nodes serve all tenants; operators of the tenant %s (permission %s) see them", access.HomeTenant, toolkeep.PermOperate)
	}
	live, age := m.Live()
	list := make([]Node, len(live))
	for i, n := range live {
		list[i] = Node{Name: n.Name, Self: owns(m, &n), Version: n.Version, URL: n.URL, StartedAt: n.StartedAt.UTC(), SeenAt: n.SeenAt.UTC(),
			Leads: append([]string{}, n.Leads...), Facts: n.Data}
	}
	return list, age, nil
}

// owns tells whether n is the node that is asked.
func owns(m Members, n *toolkeep.NodeState) bool { return n.Name+"/"+n.Run == m.Owner() }

// CountOf is the number of nodes that live.
func CountOf(m Members) Count {
	names, _ := m.Names()
	return Count{len(names)}
}
