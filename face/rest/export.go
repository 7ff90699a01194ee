package rest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/export"
)

type exportInput struct {
	As        string   `query:"as" required:"true" enum:"openai,openai-responses,anthropic,gemini,mcp,langchain" doc:"form of the tools"`
	Strict    bool     `query:"strict" doc:"make OpenAI and Anthropic enforce the schemas"`
	Set       string   `query:"set" maxLength:"64" doc:"only tools of this set, as at /mcp/sets/{name}"`
	Namespace string   `query:"namespace" maxLength:"64"`
	Category  string   `query:"category" maxLength:"64"`
	Tag       []string `query:"tag,explode" maxItems:"64" doc:"only tools with all of these tags; repeatable"`
	Tool      []string `query:"tool,explode" maxItems:"1000" doc:"only these tool ids; repeatable"`
}

// ExportAnswer is the tools in a provider's form, and what that cost.
type ExportAnswer struct {
	Form     string         `json:"form"`
	Tools    document       `json:"tools" doc:"the tools as the provider takes them: a list, for mcp the result of tools/list"`
	Names    []export.Named `json:"names" doc:"which tool a name stands for"`
	Losses   []export.Loss  `json:"losses" doc:"what of the schemas the form cannot say"`
	LeftOut  []export.Left  `json:"left_out" doc:"tools that the form cannot hold"`
	Warnings []string       `json:"warnings"`
}

type exportOutput struct{ Body ExportAnswer }

// document is JSON of any kind that is passed on as it is.
type document json.RawMessage

// MarshalJSON gives the bytes.
func (d document) MarshalJSON() ([]byte, error) { return d, nil }

func (document) describe(*components) tree { return tree{} }

// maxExported is how many tools one export has. A model's request takes far fewer.
const maxExported = 20_000

func (a *API) exportTools(ctx context.Context, p *toolkeep.Principal, in *exportInput) (*exportOutput, error) {
	sees := a.callable(p)
	if in.Set != "" {
		var includes func(*toolkeep.Tool) bool
		if a.c.Set != nil {
			includes, _ = a.c.Set(p, in.Set)
		}
		if includes == nil {
			return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no set %s; sets are in the file that mcp.sets_file names", toolkeep.ClipBytes(in.Set, 64))
		}
		callable := sees
		sees = func(t *toolkeep.Tool) bool { return includes(t) && callable(t) }
	}
	var tools []*toolkeep.Tool
	held := []export.Left{}
	add := func(id string) error {
		v, _, err := a.c.Catalog.Describe(ctx, p, id, "", sees)
		switch {
		case err != nil:
			return err
		case v.Life.Held != nil:
			held = append(held, export.Left{Tool: v.Tool.ID, Reason: "it waits for review and cannot be called: " + toolkeep.ClipBytes(v.Life.Held.Why, 200)})
		default:
			tools = append(tools, v.Tool)
		}
		return nil
	}
	fits := func(m *toolkeep.Manifest) bool {
		return (in.Category == "" || m.Category == in.Category) && m.HasTags(in.Tag) &&
			(in.Namespace == "" || strings.HasPrefix(m.ToolID, in.Namespace+"."))
	}
	if len(in.Tool) > 0 {
		for _, id := range compact(in.Tool) {
			if err := add(id); err != nil { // a tool that was named must be there
				return nil, err
			}
		}
		tools = slices.DeleteFunc(tools, func(t *toolkeep.Tool) bool { return !fits(t.Manifest) })
	} else {
		filter := catalog.Filter{Category: in.Category, Tags: in.Tag, Namespace: in.Namespace, Limit: catalog.MaxPage}
		for {
			list, total := a.c.Catalog.List(p, filter, sees)
			for _, s := range list {
				if err := add(s.ToolID); err != nil && !toolkeep.IsCode(err, toolkeep.ToolNotFound) { // gone since
					return nil, err
				}
			}
			filter.Offset += len(list)
			if total > maxExported {
				return nil, toolkeep.NewError(toolkeep.InvalidParameters, "these are %d tools; an export has at most %d: choose a set, a namespace, a category or a tag", total, maxExported)
			}
			if len(list) == 0 || filter.Offset >= total {
				break
			}
		}
	}
	res, err := export.Export(tools, export.Options{Form: export.Form(in.As), Strict: in.Strict})
	if err != nil {
		return nil, err
	}
	return &exportOutput{ExportAnswer{Form: in.As, Tools: document(res.Document), Names: res.Names, Losses: res.Losses,
		LeftOut: append(held, res.LeftOut...), Warnings: some(res.Warnings)}}, nil
}

// compact gives every id once, in order.
func compact(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}
