package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/nodes"
	"github.com/toolkeep/toolkeep/control/servers"
)

// Node names the schema in the document.
type Node struct {
	nodes.Node
	Facts object `json:"facts" doc:"what nodes compare"`
}

type listNodesOutput struct {
	Body struct {
		Nodes []Node `json:"nodes"`
		AgeMS int64  `json:"age_ms" doc:"how old this knowledge is; it grows while the store does not answer"`
	} `nameHint:"NodeList"`
}

func (a *API) listNodes(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*listNodesOutput, error) {
	list, age, err := nodes.List(p, a.c.Nodes)
	if err != nil {
		return nil, err
	}
	out := &listNodesOutput{}
	out.Body.Nodes, out.Body.AgeMS = make([]Node, len(list)), age.Milliseconds()
	for i, n := range list {
		out.Body.Nodes[i] = Node{n, object(servers.WithoutTold(n.Facts))}
	}
	return out, nil
}
