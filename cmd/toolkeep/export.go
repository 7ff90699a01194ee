package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/catalog/export"
)

// exported is the server's response.
type exported struct {
	Tools    json.RawMessage `json:"tools"`
	Names    []export.Named  `json:"names"`
	Losses   []export.Loss   `json:"losses"`
	LeftOut  []export.Left   `json:"left_out"`
	Warnings []string        `json:"warnings"`
}

func (a *app) exportCmd() *cobra.Command {
	q := url.Values{}
	var form, set, namespace, category, tag, output, report string
	var tools []string
	var strict bool
	c := &cobra.Command{
		Use:   "export --as FORM",
		Short: "Write tools as function schemas for a provider of models",
		Long: `Write the tools that your key may see as function schemas: the tools of OpenAI's Chat
Completions (openai) or Responses (openai-responses), Anthropic's Messages (anthropic), Gemini's
generateContent (gemini), MCP's tools/list (mcp), or the arguments of LangChain's StructuredTool
(langchain). The names are those of the MCP face.

If a provider supports less than JSON Schema, the unsupported parts are removed, and standard error says
what was lost and where. A tool that cannot be written at all is left out and named.

-o is the file here: the form of the answer, with names and losses, is --format.`,
		Example: `  toolkeep export --as openai --namespace bookshop -o tools.json
  toolkeep export --as anthropic --tool std.hash --tool std.echo
  toolkeep export --as openai --strict --set support --report losses.json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(export.Forms(), export.Form(form)) {
				return usagef("--as is one of %s, not %q", formNames(export.Forms()), form)
			}
			for name, v := range map[string]string{"as": form, "set": set, "namespace": namespace, "category": category, "tag": tag} {
				if v != "" {
					q.Set(name, v)
				}
			}
			if strict {
				q.Set("strict", "true")
			}
			for _, t := range tools {
				q.Add("tool", t)
			}
			return a.export(cmd.Context(), q, output, report)
		},
	}
	f := c.Flags()
	f.StringVar(&form, "as", "", "form: "+formNames(export.Forms()))
	f.BoolVar(&strict, "strict", false, "make OpenAI and Anthropic enforce the schemas, as far as they can")
	f.StringVar(&set, "set", "", "only tools of this set")
	f.StringVar(&namespace, "namespace", "", "only of this namespace")
	f.StringVar(&category, "category", "", "only this category")
	f.StringVar(&tag, "tag", "", "only with this tag")
	f.StringArrayVar(&tools, "tool", nil, "only this tool; repeatable")
	f.StringVarP(&output, "output", "o", "", "write the tools to this file instead of standard output")
	f.StringVar(&report, "report", "", "write names, losses and what was left out to this file, as JSON")
	_ = c.RegisterFlagCompletionFunc("namespace", a.completeNamespaces)
	_ = c.RegisterFlagCompletionFunc("tool", a.completeTools)
	_ = c.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(strings.Split(formNames(export.Forms()), ", "), cobra.ShellCompDirectiveNoFileComp))
	return a.withJSON(c)
}

func (a *app) export(ctx context.Context, q url.Values, output, report string) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	say, done := a.patience("exporting")
	say("exporting")
	var res exported
	raw, err := cl.get(ctx, "/api/v1/tools/export?"+q.Encode(), &res)
	done()
	if err != nil {
		return err
	}
	if report != "" {
		about, err := json.Marshal(map[string]any{"form": q.Get("as"), "names": res.Names, "losses": res.Losses, "left_out": res.LeftOut, "warnings": res.Warnings})
		if err != nil {
			return err
		}
		if err := writeJSON(report, about); err != nil {
			return err
		}
	}
	if output != "" {
		if err := writeJSON(output, res.Tools); err != nil {
			return err
		}
	}
	if len(res.Names)+len(res.LeftOut) == 0 {
		fmt.Fprintln(a.stderr, "toolkeep: no tool fits that you may see"+a.namespaceMeant(ctx, q.Get("namespace"), 0))
	}
	if a.json {
		return a.printJSON(raw)
	}
	if output == "" {
		if err := a.printJSON(res.Tools); err != nil {
			return err
		}
	}
	return res.tell(a.stderr, report)
}

// told is the maximum number of losses on standard error; a file takes all of them.
const told = 40

// tell reports the losses of the export.
func (e *exported) tell(w io.Writer, report string) error {
	fmt.Fprintf(w, "toolkeep: %d tools written, %d left out, %d losses\n", len(e.Names), len(e.LeftOut), len(e.Losses))
	for _, warning := range e.Warnings {
		fmt.Fprintln(w, "toolkeep: warning:", warning)
	}
	if len(e.LeftOut) > 0 {
		if err := table(w, "LEFT OUT|REASON", func(row func(...any)) {
			for _, l := range e.LeftOut {
				row(l.Tool, l.Reason)
			}
		}); err != nil {
			return err
		}
	}
	if len(e.Losses) == 0 || report != "" {
		return nil
	}
	err := table(w, "TOOL|AT|LOST|WHY", func(row func(...any)) {
		for _, l := range e.Losses[:min(len(e.Losses), told)] {
			row(l.Tool, orWhole(l.Pointer), l.Lost, l.Why)
		}
	})
	if n := len(e.Losses) - told; n > 0 {
		fmt.Fprintf(w, "and %d losses more; --report FILE or --json has all of them\n", n)
	}
	return err
}

// writeJSON writes a file atomically.
func writeJSON(name string, raw []byte) error {
	text, err := indent(raw)
	if err != nil {
		return err
	}
	if _, err := replaceFile(name, strings.NewReader(text+"\n")); err != nil {
		return usagef("%s cannot be written: %v", name, err)
	}
	return nil
}
