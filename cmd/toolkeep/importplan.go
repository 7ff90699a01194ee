package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
)

// importFlags adds the common flags of all imports.
func importFlags(c *cobra.Command, choice *importChoice) {
	f := c.Flags()
	f.BoolVar(&choice.dryRun, "dry-run", false, "print the plan and change nothing")
	f.BoolVar(&choice.force, "force", false, "publish breaking changes under the bump as it is; recorded")
	f.BoolVar(&choice.shared, "shared", false, "the tools belong to all tenants")
	f.BoolVar(&choice.all, "all", false, "list unchanged tools too")
}

// variable reads a variable of this process for an import.
func (a *app) variable(name string) (string, bool) {
	if a.mayRead != nil && !a.mayRead(name) {
		return "", false
	}
	return os.LookupEnv(name)
}

// checkNamespace refuses an invalid --namespace before anything is read.
func checkNamespace(s string) error {
	if err := source.CheckNamespace(s); err != nil {
		return usagef("--namespace %s", toolkeep.AsError(err).Message)
	}
	return nil
}

// planned is a finished plan.
type planned struct {
	changed        [][]byte // manifests that are new or changed
	tools, refused int
	show           func() error
	all            [][]byte // the manifests of all tools, unchanged ones too
	about          about
}

// about is what a source says of itself, by which searches find its tools too, and what is to be kept of what was chosen of it.
type about struct {
	namespace, text, title string
	choice                 *openapi.Choice
}

// importSource is importPlan for the plans of catalog/source.
func (a *app) importSource(ctx context.Context, what string, choice importChoice, read func(source.Previous) (*source.Plan, error)) error {
	return a.importPlan(ctx, what, choice, func(previous source.Previous) (*planned, error) {
		plan, err := read(previous)
		if err != nil {
			return nil, err
		}
		all := make([][]byte, len(plan.Tools))
		for i, t := range plan.Tools {
			all[i] = t.Manifest
		}
		return &planned{plan.Changed(), len(plan.Tools), len(plan.Refused), func() error { return a.showSourcePlan(plan, choice.all) }, all, about{}}, nil
	})
}

// importPlan plans with read, which looks up published tools, shows the plan, and publishes it unless choice says
// otherwise. what names the source in progress messages.
func (a *app) importPlan(ctx context.Context, what string, choice importChoice, read func(source.Previous) (*planned, error)) error {
	cl, plan, err := a.plan(ctx, what, choice, read)
	switch {
	case err != nil:
		return err
	case a.collect != nil:
		return a.collect(plan)
	case choice.dryRun:
		return plan.show()
	}
	return a.publishPlanned(ctx, cl, plan, choice)
}

// plan makes a plan with read. A dry run needs no server.
func (a *app) plan(ctx context.Context, what string, choice importChoice, read func(source.Previous) (*planned, error)) (*client, *planned, error) {
	cl, err := a.connect()
	if err != nil && !choice.dryRun {
		return nil, nil, err
	}
	say, done := a.patience("reading " + what)
	defer done()
	previous := &previousTools{ctx: ctx, client: cl, say: say, offline: true}
	if err == nil {
		if previous.offline, err = cl.offline(ctx, choice.dryRun); err != nil {
			return nil, nil, err
		}
	}
	plan, err := read(previous.find)
	switch {
	case previous.err != nil: // the plan treated failed lookups as new tools
		return nil, nil, previous.err
	case err != nil:
		return nil, nil, &failure{code: exitUsage, err: err}
	}
	return cl, plan, nil
}

// publishPlanned publishes what is new or changed, shows the plan, and counts.
func (a *app) publishPlanned(ctx context.Context, cl *client, plan *planned, choice importChoice) error {
	if c := plan.about.choice; c != nil { // first: what is excluded must not come back because of a fault below
		if _, err := cl.do(ctx, http.MethodPut, choicesOf(plan.about.namespace), map[string]any{"title": plan.about.title, "shared": choice.shared,
			"include": canon.Strings(c.Include), "exclude": canon.Strings(c.Exclude), "names": canon.Strings(c.Names)}); err != nil {
			return err
		}
	}
	say, done := a.patience(fmt.Sprintf("publishing %d tools", len(plan.changed)))
	published, err := cl.publish(ctx, plan.changed, choice, say)
	done()
	if err != nil {
		if len(published) > 0 {
			fmt.Fprintf(a.stderr, "toolkeep: %d of %d tools were published before the error; importing again goes on from there\n", len(published), len(plan.changed))
		}
		return err
	}
	if plan.about.namespace != "" && plan.tools > 0 {
		if _, err := cl.do(ctx, http.MethodPut, "/api/v1/namespaces/"+plan.about.namespace+"/about", map[string]any{"about": plan.about.text, "shared": choice.shared, "import": true}); err != nil {
			fmt.Fprintln(a.stderr, "toolkeep: warning: searches do not know what the document says of itself:", err)
		}
	}
	if err := plan.show(); err != nil {
		return err
	}
	if !a.json {
		showDeprecated(a.stdout, published)
		if _, err = fmt.Fprintf(a.stdout, "Published %d, unchanged %d, refused %d.\n", len(published), plan.tools-len(plan.changed), plan.refused); err != nil {
			return err
		}
	}
	if plan.tools == 0 && plan.refused > 0 {
		return usagef("nothing was published: all %d are refused, for the reasons above", plan.refused)
	}
	return nil
}

func (a *app) showSourcePlan(plan *source.Plan, all bool) error {
	tools, refused, counts := []map[string]any{}, []map[string]any{}, map[string]int{}
	for _, t := range plan.Tools {
		counts[t.Change]++
		tools = append(tools, map[string]any{"name": t.Name, "origin": t.Origin, "version": t.Version, "change": t.Change})
	}
	for _, r := range plan.Refused {
		refused = append(refused, map[string]any{"origin": r.Origin, "reason": r.Reason})
	}
	raw, err := json.Marshal(map[string]any{"title": plan.Title, "version": plan.Version, "items": plan.Items, "tools": tools,
		"refused": refused, "warnings": append([]string{}, plan.Warnings...), "changes": counts})
	if err != nil {
		return err
	}
	return a.printPlan(raw, fmt.Sprintf("%s: %d tools, %d refused", plan.Title, len(plan.Tools), len(plan.Refused)), "TOOL|VERSION|CHANGE|FROM",
		func(row func(...any)) {
			for _, t := range plan.Tools {
				if all || t.Change != source.ChangeUnchanged {
					row(t.Name, t.Version, t.Change, t.Origin)
				}
			}
		}, func(row func(...any)) {
			for _, r := range plan.Refused {
				row(r.Origin, r.Reason)
			}
		}, plan.Warnings)
}

// printPlan prints a plan: as JSON, or as a head, the tools in columns, the refused ones, and the warnings on
// standard error.
func (a *app) printPlan(raw []byte, head, columns string, tools, refused func(row func(...any)), warnings []string) error {
	return a.show(raw, func(w io.Writer) error {
		fmt.Fprintln(w, head+"\n")
		err := table(w, columns, tools)
		some := false
		refused(func(...any) { some = true })
		if err == nil && some {
			fmt.Fprintln(w)
			err = table(w, "REFUSED|REASON", refused)
		}
		for _, warning := range warnings {
			fmt.Fprintln(a.stderr, "toolkeep: warning:", warning)
		}
		return err
	})
}
