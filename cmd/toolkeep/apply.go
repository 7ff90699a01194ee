package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/declare"
	"github.com/toolkeep/toolkeep/suggest"
)

func (a *app) applyCmd() *cobra.Command {
	var dir string
	var prune, dryRun bool
	c := &cobra.Command{
		Use:   "apply -f DIR",
		Short: "Make the server as a folder of configuration says",
		Long: `Make the server as a folder says: tools from manifests and imports, MCP servers, scopes of keys. The folder has
toolkeep.yaml, manifests in tools/, and roles.yaml; docs/configuration-as-code.md describes them.

Everything is read, checked and compared first and shown as one plan. If a secret, a key or a role is missing, or a role
differs, the plan says what to do by hand and nothing is changed. Then the steps are carried out in order; the first that fails
ends it, and applying again goes on. Where nothing differs, nothing is changed.

--prune also removes what was applied from a folder of this name before and is not in it any more: its tools are blocked, its
MCP servers removed. What was made in another way stays.

With --dry-run the exit code is 0 where nothing differs, 2 where something does, 3 where the folder cannot be applied.`,
		Example: "  toolkeep apply -f shop --dry-run\n  toolkeep apply -f shop --prune",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usagef("-f DIR is missing: the folder of configuration")
			}
			return a.apply(cmd.Context(), dir, prune, dryRun)
		},
	}
	c.Flags().StringVarP(&dir, "folder", "f", "", "folder of configuration")
	c.Flags().BoolVar(&prune, "prune", false, "remove what was applied from the folder and is not in it any more")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "show the plan and change nothing")
	return a.withJSON(c)
}

// withFolderDiff lets diff compare a folder with the server.
func withFolderDiff(a *app, c *cobra.Command) *cobra.Command {
	var dir string
	var prune bool
	versions, compare := c.Args, c.RunE
	c.Use = "diff TOOL@FROM TOOL@TO | diff -f DIR"
	c.Short = "Compare two versions of a tool, or a folder of configuration with the server"
	c.Long = "Compare two versions: what breaks callers, what is new. With -f compare a folder of configuration with the server, as\napply --dry-run does: the exit code is 0 where nothing differs, 2 where something does, 3 where the folder cannot be applied."
	c.Example += "\n  toolkeep diff -f shop"
	c.Args = func(c *cobra.Command, args []string) error {
		if dir != "" {
			return noArguments(c, args)
		}
		return versions(c, args)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case dir != "":
			return a.apply(cmd.Context(), dir, prune, true)
		case prune:
			return usagef("--prune goes with -f DIR")
		}
		return compare(cmd, args)
	}
	c.Flags().StringVarP(&dir, "folder", "f", "", "folder of configuration to compare with the server")
	c.Flags().BoolVar(&prune, "prune", false, "with -f: what was applied from the folder and is not in it any more differs too")
	return c
}

// application is one apply.
type application struct {
	a         *app
	cl        *client
	dir       string
	folder    *declare.Folder
	manifests [][]byte          // of the folder, then of its imports
	places    []declare.Place   // where they come from
	has       map[string]string // ids of the tools of all manifests, with the file of each
	notes     []string
	now       declare.Now
}

// apply plans, shows the plan, and carries it out unless dryRun is set.
func (a *app) apply(ctx context.Context, dir string, prune, dryRun bool) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	x := &application{a: a, cl: cl, dir: dir, has: map[string]string{}}
	say, done := a.patience("reading " + dir)
	plan, err := x.plan(ctx, prune, say)
	done()
	if err != nil {
		return notTwo(err)
	}
	blocked := len(plan.Faults)+len(plan.ByHand) > 0
	if dryRun || blocked || len(plan.Steps) == 0 {
		if err := a.showFolderPlan(plan, nil, dryRun); err != nil {
			return err
		}
	}
	switch {
	case len(plan.Faults) > 0:
		return a.told(exitRefused, fmt.Errorf("%s cannot be applied: %s", dir, counted(len(plan.Faults), "fault")))
	case dryRun && plan.Differs():
		return &failure{code: exitUsage, quiet: true, err: errors.New("something differs")}
	case blocked:
		return a.told(exitRefused, fmt.Errorf("nothing was changed: %s to be done by hand first, as the plan says", counted(len(plan.ByHand), "thing has", "things have")))
	case dryRun || len(plan.Steps) == 0:
		return nil
	case !a.json:
		if err := a.showFolderPlan(plan, nil, false); err != nil {
			return err
		}
	}
	did, err := x.carryOut(ctx, plan)
	if a.json {
		err = errors.Join(err, a.showFolderPlan(plan, &did, false))
	} else if err == nil {
		_, err = fmt.Fprintf(a.stdout, "Done: %s.\n", counted(did, "change"))
	}
	if err == nil {
		return nil
	}
	fmt.Fprintf(a.stderr, "toolkeep: %d of %d changes were made, the next one, of the %s %s, was not. Apply again once its cause is mended, which goes on from there.\n",
		did, len(plan.Steps), plan.Steps[min(did, len(plan.Steps)-1)].Kind, plan.Steps[min(did, len(plan.Steps)-1)].ID)
	code := exitToolFailed
	var f *failure
	if did == 0 && errors.As(notTwo(err), &f) {
		code = f.code
	}
	return a.told(code, err)
}

// told is a failure whose plan is printed already: with --json it is told on standard error alone, so that standard output has
// one document.
func (a *app) told(code int, err error) error {
	if a.json {
		fmt.Fprintln(a.stderr, "toolkeep:", err)
	}
	return &failure{code: code, err: err, quiet: a.json}
}

// notTwo keeps 2 for differences.
func notTwo(err error) error {
	var f *failure
	if errors.As(err, &f) && f.code == exitUsage {
		return &failure{code: exitRefused, err: f.err, quiet: f.quiet}
	}
	return err
}

// counted is a number with its noun, whose plural has an s or is given.
func counted(n int, one string, more ...string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, append(more, one+"s")[0])
}

func (a *app) showFolderPlan(p *declare.Plan, did *int, dryRun bool) error {
	raw, err := json.Marshal(struct {
		*declare.Plan
		DryRun bool `json:"dry_run"`
		Done   *int `json:"done,omitempty"` // steps that were carried out
	}{p, dryRun, did})
	if err != nil {
		return err
	}
	return a.show(raw, func(w io.Writer) error {
		for _, f := range p.Faults {
			fmt.Fprintln(a.stderr, printable(f.String(), ""))
		}
		for _, n := range p.Notes {
			fmt.Fprintln(a.stderr, "toolkeep:", printable(n, ""))
		}
		if len(p.Faults) > 0 {
			return nil
		}
		if !p.Differs() {
			_, err := fmt.Fprintf(w, "%s: nothing differs (%d compared)\n", p.Folder, p.Same)
			return err
		}
		fmt.Fprintf(w, "%s: %s, %d by hand, %d the same\n\n", p.Folder, counted(len(p.Steps), "change"), len(p.ByHand), p.Same)
		err := table(w, "ACTION|KIND|WHAT|HOW", func(row func(...any)) {
			for _, s := range p.ByHand {
				row("by hand", s.Kind, s.ID, s.How)
			}
			for _, s := range p.Steps {
				row(s.Action, s.Kind, s.ID, s.How)
			}
		})
		if dryRun {
			fmt.Fprintln(w, "\nNothing was changed.")
		}
		return err
	})
}

// plan reads the folder and compares it with the server. Faults of the files alone end it before the server is asked.
func (x *application) plan(ctx context.Context, prune bool, say func(string)) (*declare.Plan, error) {
	root, err := os.OpenRoot(x.dir)
	if err != nil {
		return nil, usagef("the folder cannot be opened: %v", err)
	}
	defer root.Close()
	f, err := declare.Read(root.FS())
	if err != nil {
		return nil, usagef("the folder cannot be read: %v", err)
	}
	x.folder = f
	var runs []func(context.Context) error
	for _, one := range f.Imports {
		runs = append(runs, x.importer(one))
	}
	if len(f.Faults) > 0 {
		return declare.Compare(f, x.now, prune), nil
	}
	for _, t := range f.Tools {
		x.manifests, x.places = append(x.manifests, t.Manifest), append(x.places, t.Place)
		x.has[t.ID] = t.File
	}
	for i, run := range runs {
		say("reading " + f.Imports[i].Source)
		if err := x.runImport(ctx, f.Imports[i], run); err != nil {
			return nil, err
		}
	}
	for _, step := range []func(context.Context) error{x.askSecrets, x.askTools, x.askServers, x.askRoles, x.askKeys, x.askLeft} {
		say("comparing with the server")
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	plan := declare.Compare(f, x.now, prune)
	plan.Notes = append(plan.Notes, x.notes...)
	return plan, x.askWidths(ctx, plan)
}

func (x *application) fault(at declare.Place, format string, args ...any) {
	x.folder.Faults = append(x.folder.Faults, declare.Fault{Place: at, Message: fmt.Sprintf(format, args...)})
}

// refused makes the server's refusal of something in the folder a fault of its place; other errors end the plan.
func (x *application) refused(at declare.Place, err error) error {
	var r *refusedError
	if !errors.As(err, &r) {
		return err
	}
	x.a.explainStart(err)
	list, _ := r.Details["errors"].([]any)
	if len(list) == 0 {
		open := ""
		if address, _ := r.Details["url"].(string); address != "" && r.Code == string(toolkeep.LoginRequired) {
			open = "; open " + address
		}
		x.fault(at, "%s%s", r.Error(), open)
	}
	for _, it := range list {
		m, _ := it.(map[string]any)
		x.fault(at.At(first(m, "pointer")), "%s %s: %s", r.Code, orWhole(first(m, "pointer")), first(m, "message"))
	}
	return nil
}

// Flags of imports that a folder does not set, and those that name files of the folder.
var (
	notInFolder = []string{"dry-run", "force", "shared", "all", "json", "config", "set", "root", "help"}
	folderFiles = []string{"protoset", "import-path", "ca", "cert", "key", "overlay"}
)

// importer is the command of an import with its flags set; what is wrong with them is a fault.
func (x *application) importer(one declare.Import) func(context.Context) error {
	asJSON := x.a.json
	parent := x.a.importCmd() // which sets the app's --json back
	x.a.json = asJSON
	commands := parent.Commands()
	c := commands[slices.IndexFunc(commands, func(c *cobra.Command) bool { return c.Name() == one.Kind })]
	inside := func(at declare.Place, name string) string {
		dotted := func(part string) bool { return part != "." && strings.HasPrefix(part, ".") } // links there are not looked for
		if !filepath.IsLocal(name) || slices.ContainsFunc(strings.Split(filepath.ToSlash(name), "/"), dotted) {
			x.fault(at, "%q is not a file of the folder: write its path from the folder on, without names that begin with a dot", toolkeep.Clip(name, 200))
		}
		return filepath.Join(x.dir, name)
	}
	source := one.Source
	if one.Kind == "functions" || one.Kind == "toolbox" || one.Kind == "openapi" && !strings.HasPrefix(source, "http://") && !strings.HasPrefix(source, "https://") {
		source = inside(one.At("/"+one.Kind), source)
		if one.Kind == "openapi" {
			_ = c.Flags().Set("root", x.dir)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(one.Options)) {
		at := one.At("/" + name)
		flag := c.Flags().Lookup(name)
		if flag == nil || slices.Contains(notInFolder, name) {
			var names []string
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if !slices.Contains(notInFolder, f.Name) {
					names = append(names, f.Name)
				}
			})
			x.fault(at, "an import of %s has no member %s here; the nearest is %s", one.Kind, name, suggest.Nearest(name, names))
			continue
		}
		texts, ok := textsOf(one.Options[name])
		if !ok {
			x.fault(at, "%s takes a text, a number, true or false, a list of those, or a mapping of texts", name)
		}
		for _, text := range texts {
			if slices.Contains(folderFiles, name) {
				text = inside(at, text)
			}
			if err := c.Flags().Set(name, text); err != nil {
				x.fault(at, "%v", plainFlagError(c, err))
			}
		}
	}
	return func(ctx context.Context) error {
		c.SetContext(ctx)
		return c.RunE(c, []string{source})
	}
}

// textsOf are the values of a flag as the command line has them.
func textsOf(v any) (out []string, ok bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case bool:
		return []string{strconv.FormatBool(v)}, true
	case float64:
		return []string{strconv.FormatFloat(v, 'f', -1, 64)}, true
	case []any:
		for _, e := range v {
			text, one := textsOf(e)
			if !one || len(text) != 1 {
				return nil, false
			}
			out = append(out, text[0])
		}
		return out, true
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			text, one := v[k].(string)
			if !one {
				return nil, false
			}
			out = append(out, k+"="+text)
		}
		return out, true
	}
	return nil, false
}

func (x *application) runImport(ctx context.Context, one declare.Import, run func(context.Context) error) error {
	x.a.collect = func(p *planned) error {
		for _, raw := range p.all {
			t, err := catalog.ParseManifest(raw)
			if err != nil {
				return err
			}
			if there := x.has[t.ID]; there != "" {
				x.fault(one.Place, "the import makes %s, which is in %s too", t.ID, there)
			}
			x.has[t.ID] = fmt.Sprintf("the import of %s:%d", one.File, one.Line)
			x.folder.References(one.Place, t.Manifest)
			x.manifests, x.places = append(x.manifests, raw), append(x.places, declare.Place{File: one.File, Line: one.Line})
		}
		if p.refused > 0 {
			x.notes = append(x.notes, fmt.Sprintf("%s:%d: %d of %s do not become tools; toolkeep import %s --dry-run says why", one.File, one.Line, p.refused, one.Source, one.Kind))
		}
		if p.tools == 0 {
			x.fault(one.Place, "nothing of %s becomes a tool", one.Source)
		}
		return nil
	}
	err := run(ctx)
	x.a.collect = nil
	var r *refusedError
	var failed *failure
	if err == nil || errors.As(err, &r) || ctx.Err() != nil || errors.As(err, &failed) && failed.code == exitUnavailable {
		return err
	}
	x.fault(one.Place, "%v", err)
	return nil
}

// askSecrets looks for every reference that the folder names, but for those that each user has one of.
func (x *application) askSecrets(ctx context.Context) error {
	for _, s := range x.folder.Secrets {
		if s.Scope == "user" {
			continue
		}
		body := map[string]any{"reference": s.Reference}
		if s.Workspace != "" {
			body["workspace"] = s.Workspace
		}
		var st secrets.State
		if _, err := x.cl.post(ctx, "/api/v1/secrets/test", body, &st); err != nil {
			if err := x.refused(s.Place, err); err != nil {
				return err
			}
			continue
		}
		switch {
		case st.State != "ready":
			x.now.Missing = append(x.now.Missing, declare.Missing{Secret: s, Reason: "it is " + st.State})
		case s.Scope != "" && st.Scope != s.Scope && strings.HasPrefix(s.Reference, "secret://"):
			x.now.Missing = append(x.now.Missing, declare.Missing{Secret: s, Reason: "what is found is of the scope " + st.Scope})
		}
	}
	return nil
}

// askTools has the server check all manifests.
func (x *application) askTools(ctx context.Context) error {
	options := map[string]any{"dry_run": true, "partial": true, "shared": x.folder.Shared, "folder": x.folder.Name}
	return x.cl.inBatches(ctx, x.manifests, options, func(raw []byte, first int) error {
		var answer struct {
			Published []catalog.Published `json:"published"`
			Outcomes  []struct {
				Index int    `json:"index"`
				ID    string `json:"tool_id"`
				Error *struct {
					Code    string         `json:"error_code"`
					Message string         `json:"message"`
					Details map[string]any `json:"details"`
				} `json:"error"`
			} `json:"outcomes"`
		}
		if err := decode(raw, &answer); err != nil {
			return err
		}
		x.now.Tools = append(x.now.Tools, answer.Published...)
		for _, o := range answer.Outcomes {
			if o.Error != nil {
				x.fault(x.places[first+o.Index], "%s: %s %s", o.ID, o.Error.Code, o.Error.Message)
			}
		}
		return nil
	})
}

func (x *application) serverURL(name string, more ...string) string {
	q := url.Values{}
	if x.folder.Shared {
		q.Set("shared", "true")
	}
	for _, m := range more {
		q.Set(m, "true")
	}
	return serverPath(name) + "?" + q.Encode()
}

// askServers compares the definitions, and has the server try those that are new or changed.
func (x *application) askServers(ctx context.Context) error {
	x.now.Servers = map[string]string{}
	for _, s := range x.folder.Servers {
		var answer struct {
			Definition string `json:"definition"`
		}
		raw, err := x.cl.do(ctx, http.MethodPut, x.serverURL(s.Name, "compare"), s.Spec)
		if err == nil {
			err = decode(raw, &answer)
		}
		if err == nil && answer.Definition != "same" && len(x.now.Missing) == 0 {
			if raw, err = x.cl.do(ctx, http.MethodPut, x.serverURL(s.Name, "dry_run"), s.Spec); err == nil {
				x.notes = append(x.notes, serverNotes(raw)...)
			}
		}
		if err != nil {
			if err := x.refused(s.Place, err); err != nil {
				return err
			}
		}
		x.now.Servers[s.Name] = answer.Definition
	}
	return nil
}

func (c *client) roles(ctx context.Context) (own []access.Role, file string, err error) {
	var answer struct {
		Roles []access.Role `json:"roles"`
		File  string        `json:"file"`
	}
	_, err = c.get(ctx, "/api/v1/roles", &answer)
	return answer.Roles, answer.File, err
}

func (x *application) askRoles(ctx context.Context) (err error) {
	if len(x.folder.Roles) > 0 {
		x.now.Roles, x.now.RolesFile, err = x.cl.roles(ctx)
	}
	return err
}

func (x *application) askKeys(ctx context.Context) (err error) {
	if len(x.folder.Keys) > 0 {
		x.now.Keys, err = x.cl.validKeys(ctx)
	}
	return err
}

// askWidths has the server check the scopes that would change: their patterns, and whether the caller may give them.
func (x *application) askWidths(ctx context.Context, plan *declare.Plan) error {
	before := len(x.folder.Faults)
	for _, s := range plan.Steps {
		if s.Kind != declare.KindKey {
			continue
		}
		if _, err := x.cl.do(ctx, http.MethodPatch, "/api/v1/keys/"+url.PathEscape(s.KeyID)+"?dry_run=true", map[string]any{"scope": s.Scope}); err != nil {
			if err := x.refused(s.At, err); err != nil {
				return err
			}
		}
	}
	plan.Faults = append(plan.Faults, x.folder.Faults[before:]...)
	return nil
}

// askLeft finds what was applied from the folder and is not in it.
func (x *application) askLeft(ctx context.Context) error {
	var gone []string
	for page := 1; ; page++ {
		var list struct {
			Tools      []toolSummary `json:"tools"`
			TotalCount int           `json:"total_count"`
		}
		q := url.Values{"folder": {x.folder.Name}, "include_deprecated": {"true"}, "page_size": {"200"}, "page": {strconv.Itoa(page)}}
		if _, err := x.cl.get(ctx, "/api/v1/tools?"+q.Encode(), &list); err != nil {
			return err
		}
		for _, t := range list.Tools {
			if x.has[t.ToolID] == "" {
				gone = append(gone, t.ToolID)
			}
		}
		if len(list.Tools) == 0 || page*200 >= list.TotalCount {
			break
		}
	}
	for _, id := range gone {
		var all versionList
		var t struct{ Shared bool }
		if _, err := x.cl.get(ctx, "/api/v1/tools/"+url.PathEscape(id), &t); err != nil {
			return err
		}
		other := t.Shared != x.folder.Shared // a folder of the same name that is not this one
		if _, err := x.cl.get(ctx, "/api/v1/tools/"+url.PathEscape(id)+"/versions", &all); err != nil {
			return err
		}
		for _, v := range all.Versions {
			if l := v.Lifecycle; !other && l.Folder == x.folder.Name && l.State != toolkeep.Blocked && l.State != toolkeep.Removed {
				x.now.LeftTools = append(x.now.LeftTools, id+"@"+v.Version)
			}
		}
	}
	specs, err := x.cl.serverSpecs(ctx)
	var r *refusedError
	if errors.As(err, &r) && r.Code == string(toolkeep.PermissionDenied) && len(x.folder.Servers) == 0 {
		return nil // such a key applies and prunes tools alone
	}
	for name, s := range specs {
		if s.folder == x.folder.Name && s.shared == x.folder.Shared && !slices.ContainsFunc(x.folder.Servers, func(s declare.Server) bool { return s.Name == name }) {
			x.now.LeftServers = append(x.now.LeftServers, name)
		}
	}
	slices.Sort(x.now.LeftServers)
	return err
}

// serverNotes are what a person looks at in the plan of an MCP server: findings in its tools' texts, and what is refused or waits.
func serverNotes(raw []byte) (notes []string) {
	var plan serverPlan
	if err := json.Unmarshal(raw, &plan); err != nil {
		return []string{"the plan of the MCP server cannot be read: " + err.Error()}
	}
	for _, t := range plan.Tools {
		for _, f := range t.Findings {
			notes = append(notes, fmt.Sprintf("%s: %s (%s) at %s: %s", t.ToolID, f.Rule, f.Severity, orWhole(f.Pointer), f.Message))
		}
	}
	for _, r := range plan.Refused {
		notes = append(notes, fmt.Sprintf("%s.%s does not become a tool: %s", plan.Server, r.Tool, r.Reason))
	}
	return notes
}

// carryOut does the steps in order, and says how many were done.
func (x *application) carryOut(ctx context.Context, plan *declare.Plan) (did int, err error) {
	for did < len(plan.Steps) {
		n := 1
		s := plan.Steps[did]
		say, done := x.a.patience(fmt.Sprintf("%s %s", s.Kind, s.ID))
		switch {
		case s.Kind == declare.KindKey:
			_, err = x.cl.do(ctx, http.MethodPatch, "/api/v1/keys/"+url.PathEscape(s.KeyID), map[string]any{"scope": s.Scope})
		case s.Kind == declare.KindTool && s.Action == declare.Remove:
			id, version, _ := strings.Cut(s.ID, "@")
			_, err = x.cl.do(ctx, http.MethodPost, "/api/v1/tools/"+url.PathEscape(id)+"/versions/"+url.PathEscape(version)+"/state",
				map[string]any{"state": "blocked", "folder": plan.Folder, "reason": "the folder of configuration " + plan.Folder + " does not have it any more"})
		case s.Kind == declare.KindTool:
			n, err = x.publish(ctx, plan.Steps[did:], say)
		case s.Action == declare.Remove:
			_, err = x.cl.do(ctx, http.MethodDelete, serverPath(s.ID)+"?"+url.Values{"folder": {plan.Folder}}.Encode(), nil)
		default:
			err = x.putServer(ctx, s.ID)
		}
		done()
		if err != nil {
			if s.Kind != declare.KindTool || s.Action == declare.Remove {
				n = 0
			}
			return did + n, err
		}
		did += n
	}
	return did, nil
}

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
	return n, err
}

func (x *application) putServer(ctx context.Context, name string) error {
	s := x.folder.Servers[slices.IndexFunc(x.folder.Servers, func(s declare.Server) bool { return s.Name == name })]
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
