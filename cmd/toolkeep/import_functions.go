package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/catalog/source/function"
	"github.com/toolkeep/toolkeep/executor/builtin"
)

func (a *app) importFunctionsCmd() *cobra.Command {
	o := function.Options{}
	var choice importChoice
	var form, secret, auth string
	var builtins []string
	c := &cobra.Command{
		Use:   "functions FILE|-",
		Short: "Turn the function schemas of OpenAI, Anthropic, Gemini, LangChain or MCP into tools",
		Long: `Turn function schemas into tools: the lists of functions that programs give to a model, in the
form of OpenAI, Anthropic, Gemini, LangChain or MCP (tools/list). A schema describes the arguments
of a function and not what executes it, so name that too:

  --url      an HTTP endpoint that accepts the arguments as the JSON body of a POST. {name} in its
             path stands for the function's name; without it the name is added at the end.
  --builtin  NAME=TOOL, a function that a built-in tool executes, such as now=std.clock_now.

Imported again, unchanged functions keep their version. --dry-run prints the plan.`,
		Example: `  toolkeep import functions tools.json --url https://api.example.com/functions --dry-run
  toolkeep import functions tools.json --as gemini --url https://api.example.com/run/{name}/call --secret env://TOOLKEEP_SECRET_RUN
  toolkeep import functions tools.json --builtin now=std.clock_now --builtin echo=std.echo`,
		Args: arguments(1, 1, "the file with the functions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNamespace(o.Namespace); err != nil {
				return err
			}
			o.Form = function.Form(form)
			if form != "" && !slices.Contains(function.Forms(), o.Form) {
				return usagef("--as is one of %s, not %q; without it, the form of each function is detected", formNames(function.Forms()), form)
			}
			var err error
			if o.Builtins, err = builtinTools(builtins); err != nil {
				return err
			}
			if o.Auth, err = functionAuth(auth, secret); err != nil {
				return err
			}
			if err := cmp.Or(ofOtherImport(args[0]), ofOtherImport(o.URL)); err != nil {
				return err
			}
			if o.Name, o.Data, err = a.readFunctions(args[0]); err != nil {
				return err
			}
			return a.importSource(cmd.Context(), o.Name, choice, func(previous source.Previous) (*source.Plan, error) {
				o.Previous = previous
				return function.Read(o)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&form, "as", "", "form of the functions: "+formNames(function.Forms())+"; detected if absent")
	f.StringVar(&o.Namespace, "namespace", "", "namespace of the tools; made from the file's name if absent")
	f.StringVar(&o.URL, "url", "", "endpoint that executes the functions")
	f.StringVar(&o.Method, "method", "POST", "method of its requests: POST, PUT or PATCH")
	f.StringVar(&o.SideEffects, "effects", "writes", "what the functions behind --url do: none, reads or writes")
	f.StringVar(&secret, "secret", "", "secret that the endpoint requires, env://NAME, file:///PATH or another reference")
	f.StringVar(&auth, "auth", "bearer", "how it is sent: bearer, basic, header:NAME or query:NAME")
	f.StringArrayVar(&builtins, "builtin", nil, "execute a function by a built-in tool, `NAME=TOOL`; repeatable")
	importFlags(c, &choice)
	return a.withJSON(c)
}

// formNames joins names for a sentence.
func formNames[T ~string](list []T) string {
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	return strings.Join(words, ", ")
}

// readFunctions reads a file, or standard input for -.
func (a *app) readFunctions(name string) (string, []byte, error) {
	if name != "-" {
		raw, err := readFile(name)
		if err != nil {
			return "", nil, usagef("%v", err)
		}
		return name, raw, nil
	}
	raw, err := io.ReadAll(io.LimitReader(a.stdin, maxInput+1))
	if err == nil && len(raw) > maxInput {
		err = fmt.Errorf("standard input is over %d MiB", maxInput>>20)
	}
	if err != nil {
		return "", nil, usagef("%v", err)
	}
	return "functions", raw, nil
}

// builtinTools parses NAME=TOOL and looks up the server's tools.
func builtinTools(list []string) (map[string]function.Builtin, error) {
	if len(list) == 0 {
		return nil, nil
	}
	tools, ids := map[string]function.Builtin{}, []string{}
	for _, raw := range builtin.Manifests() {
		var m toolkeep.Manifest
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, err
		}
		ids = append(ids, m.ToolID)
		tools[m.ToolID] = function.Builtin{Kind: m.Execution.Kind, Binding: m.Execution.Binding,
			SideEffects: or(m.SideEffects, "writes"), Idempotent: m.Idempotent, Result: m.ResultSchema}
	}
	out := map[string]function.Builtin{}
	for _, entry := range list {
		name, id, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			return nil, usagef("--builtin %s: write NAME=TOOL, such as now=std.clock_now", entry)
		}
		b, ok := tools[id]
		if !ok {
			return nil, usagef("--builtin %s: the server has no function %s of its own; it has %s", entry, id, strings.Join(ids, ", "))
		}
		out[name] = b
	}
	return out, nil
}

// functionAuth parses where a secret goes. Without a secret nothing is sent.
func functionAuth(how, secret string) (*toolkeep.AuthSpec, error) {
	if secret == "" {
		if how != "bearer" {
			return nil, usagef("--auth %s says how a secret is sent; name the secret with --secret", how)
		}
		return nil, nil
	}
	if !strings.Contains(secret, "://") {
		return nil, usagef("--secret: write a reference such as env://NAME or file:///PATH; never give the secret itself on the command line")
	}
	place, name, named := strings.Cut(how, ":")
	switch {
	case (how == "bearer" || how == "basic") && !named:
		return &toolkeep.AuthSpec{Type: how, Secret: secret}, nil
	case (place == "header" || place == "query") && name != "":
		return &toolkeep.AuthSpec{Type: "api_key", Secret: secret, In: place, Name: name}, nil
	}
	return nil, usagef("--auth is bearer, basic, header:NAME or query:NAME, not %q", how)
}
