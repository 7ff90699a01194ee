package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/toolkeep/toolkeep/declare"
)

// publish publishes the tools that the steps begin with, and returns how many steps that were.
func (x *application) publish(ctx context.Context, steps []declare.Step, say func(string)) (n int, err error) {
	var manifests [][]byte
	index := map[string]int{} // without faults, there is an outcome for each manifest
	for i, t := range x.now.Tools {
		index[t.ToolID+"@"+t.Version] = i
	}
	for _, s := range steps {
		if s.Kind != declare.KindTool || s.Action == declare.Remove {
			break
		}
		manifests = append(manifests, x.manifests[index[s.ID]])
	}
	options := map[string]any{"shared": x.folder.Shared, "folder": x.folder.Name}
	err = x.cl.inBatches(ctx, manifests, options, func(raw []byte, _ int) error {
		var answer struct {
			Published []published `json:"published"`
		}
		err := decode(raw, &answer)
		n += len(answer.Published)
		say(fmt.Sprintf("published %d of %d tools", n, len(manifests)))
		return err
	})
	if err != nil || len(manifests) == 0 {
		return n, err
	}
	for _, said := range x.abouts { // what a person wrote in its place stays
		if _, err := x.cl.do(ctx, http.MethodPut, "/api/v1/namespaces/"+said.namespace+"/about", map[string]any{"about": said.text, "shared": x.folder.Shared, "import": true}); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (x *application) putServer(ctx context.Context, name string) error {
	s := x.server(name)
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(s.Spec, &spec); err != nil {
		return err
	}
	spec["folder"], _ = json.Marshal(x.folder.Name)
	raw, err := x.cl.do(ctx, http.MethodPut, x.serverURL(name), spec)
	if err != nil {
		return err
	}
	var plan serverPlan
	waiting := 0
	if err := decode(raw, &plan); err != nil {
		return err
	}
	for _, t := range plan.Tools {
		if t.State == "pending" || t.State == "held" {
			waiting++
		}
	}
	if waiting > 0 {
		fmt.Fprintf(x.a.stderr, "toolkeep: of the MCP server %s, %s for `toolkeep servers accept %s`\n", name, counted(waiting, "tool waits", "tools wait"), name)
	}
	return nil
}
