package servers

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream"
)

// ToldMember is the member of toolkeep.NodeState.Data with what a node's servers do. It names
// servers of all tenants: who shows a node's data leaves it out.
const ToldMember = "servers"

// maxTold bounds Told's servers in bytes of JSON.
const maxTold = 16 << 10

// Told is what a node tells the others of its servers. One that does nothing is not in it.
type Told struct {
	Servers []toldServer `json:"servers"`
	LeftOut int          `json:"servers_left_out,omitempty"` // servers that had no room
}

type toldServer struct {
	Owner      string         `json:"o,omitempty"`
	Name       string         `json:"n"`
	Tenant     string         `json:"t"`
	State      upstream.State `json:"s"`
	PID        int            `json:"p,omitempty"`
	Started    time.Time      `json:"b,omitzero"`
	Sessions   int            `json:"c,omitempty"`
	Definition time.Time      `json:"d,omitzero"`
}

// OnNode is what a node does for a server and a tenant.
type OnNode struct {
	Node         string         `json:"node" doc:"its name"`
	Self         bool           `json:"self,omitempty" doc:"this node answers"`
	State        upstream.State `json:"state" doc:"unknown: the node is of an older version, or had no room for all its servers"`
	PID          int            `json:"pid,omitempty" doc:"process of the oldest session, on the node's machine"`
	StartedAt    time.Time      `json:"started_at,omitzero" doc:"of the oldest session, by the node's clock"`
	Sessions     int            `json:"sessions"`
	DefinitionAt time.Time      `json:"definition_at,omitzero" doc:"when the definition of the server that the node runs was stored; older than another node's: it has not followed yet"`
}

// stateUnknown is that of a node that does not say.
const stateUnknown upstream.State = "unknown"

// Told is for the node's beat. It does not block.
func (s *Servers) Told() Told {
	t := Told{Servers: []toldServer{}}
	size := 0
	for _, r := range s.c.Pool.Running() {
		it := toldServer{r.Owner, r.Name, r.Tenant, r.State, r.PID, r.Since.UTC().Truncate(time.Second), r.Sessions, s.definedAt(serverID{r.Owner, r.Name}).Truncate(time.Second)}
		raw, err := json.Marshal(it)
		if size += len(raw) + 1; err != nil || size > maxTold {
			t.LeftOut++
			continue
		}
		t.Servers = append(t.Servers, it)
	}
	return t
}

// definedAt is when the server's definition that runs here was stored.
func (s *Servers) definedAt(id serverID) time.Time {
	doc, _ := s.get(id)
	return doc.UpdatedAt.UTC()
}

// liveNode is a node that lives.
type liveNode struct {
	name string
	self bool
	told *Told // what it said of its servers; nil: nothing
}

func (s *Servers) liveNodes() []liveNode {
	if s.c.Members == nil {
		return nil
	}
	live, _ := s.c.Members.Live()
	out := make([]liveNode, len(live))
	for i, n := range live {
		out[i] = liveNode{name: n.Name, self: n.Name+"/"+n.Run == s.c.Members.Owner()}
		t := new(Told)
		if json.Unmarshal(n.Data, t) == nil && t.Servers != nil {
			out[i].told = t
		}
	}
	return out
}

// on is what each node that lives does for a server and a tenant; of itself this node knows the
// present.
func (s *Servers) on(live []liveNode, here upstream.Status, tenant string) []OnNode {
	out := make([]OnNode, len(live))
	for i, n := range live {
		v := OnNode{Node: n.name, Self: n.self, State: upstream.StateIdle}
		switch {
		case n.self:
			v.State, v.PID, v.StartedAt, v.Sessions, v.DefinitionAt = here.State, here.PID, here.Since.UTC(), here.Sessions, s.definedAt(serverID{here.Owner, here.Name})
		case n.told == nil:
			v.State = stateUnknown
		default:
			v.fill(n.told, here, tenant)
		}
		out[i] = v
	}
	return out
}

// fill takes from what a node told.
func (v *OnNode) fill(t *Told, of upstream.Status, tenant string) {
	for _, it := range t.Servers {
		if it.Owner == of.Owner && it.Name == of.Name && it.Tenant == tenant {
			v.State, v.PID, v.StartedAt, v.Sessions, v.DefinitionAt = it.State, it.PID, it.Started, it.Sessions, it.Definition
			return
		}
	}
	switch {
	case t.LeftOut > 0:
		v.State = stateUnknown
	case of.State == upstream.StateDisabled: // by its definition, on every node
		v.State = of.State
	}
}

// WithoutTold is a node's data without its servers, which belong to all tenants.
func WithoutTold(data []byte) []byte {
	if !strings.Contains(string(data), ToldMember) {
		return data
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(data, &all) != nil {
		return nil
	}
	delete(all, ToldMember)
	raw, err := json.Marshal(all)
	if err != nil {
		return nil
	}
	return raw
}

// Members are the nodes that share the store; *membership.Members is one.
type Members interface {
	Live() (nodes []toolkeep.NodeState, age time.Duration)
	Owner() string
}
