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

	"github.com/Masterminds/semver/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/sql"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/declare"
	"github.com/toolkeep/toolkeep/suggest"
)

// applyOptions are the flags of apply and of diff -f.
type applyOptions struct {
	dir           string
	prune, dryRun bool
	env           []string // variables that imports may read
}

func (o *applyOptions) flags(c *cobra.Command, folder, prune string) {
	c.Flags().StringVarP(&o.dir, "folder", "f", "", folder)
	c.Flags().BoolVar(&o.prune, "prune", false, prune)
	c.Flags().StringArrayVar(&o.env, "env", nil, "`NAME` of a variable of this process that imports of the folder may read and send to where they read from; repeatable")
}

func (a *app) applyCmd() *cobra.Command {
	var o applyOptions
	c := &cobra.Command{
		Use:   "apply -f DIR",
		Short: "Make the server as a folder of configuration says",
		Long: `Make the server as a folder says: tools from manifests and imports, MCP servers, scopes of keys. The folder has
toolkeep.yaml, manifests in tools/, and roles.yaml; docs/configuration-as-code.md describes them.

Everything is read, checked and compared first and shown as one plan. If a secret, a key or a role is missing, or a role
differs, the plan says what to do by hand and nothing is changed. Then each MCP server whose definition is new or changed is
started or connected once, and the steps are carried out in order; the first that fails ends it, and applying again goes on.
Where nothing differs, nothing is changed. With --dry-run no MCP server is started or connected.

Imports of the folder read no variable of this process but those that --env names, such as --env TOOLKEEP_SQL_PASSWORD.

--prune also removes what was applied from a folder of this name before and is not in it any more: its tools are blocked, its
MCP servers removed. What was made in another way stays.

With --dry-run the exit code is 0 where nothing differs, 2 where something does, 3 where the folder cannot be applied.`,
		Example: "  toolkeep apply -f shop --dry-run\n  toolkeep apply -f shop --prune",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.dir == "" {
				return usagef("-f DIR is missing: the folder of configuration")
			}
			return a.apply(cmd.Context(), o)
		},
	}
	o.flags(c, "folder of configuration", "remove what was applied from the folder and is not in it any more")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show the plan and change nothing")
	return a.withJSON(c)
}

// withFolderDiff lets diff compare a folder with the server.
func withFolderDiff(a *app, c *cobra.Command) *cobra.Command {
	o := applyOptions{dryRun: true}
	versions, compare := c.Args, c.RunE
	c.Use = "diff TOOL@FROM TOOL@TO | diff -f DIR"
	c.Short = "Compare two versions of a tool, or a folder of configuration with the server"
	c.Long = "Compare two versions: what breaks callers, what is new. With -f compare a folder of configuration with the server, as\napply --dry-run does: the exit code is 0 where nothing differs, 2 where something does, 3 where the folder cannot be applied."
	c.Example += "\n  toolkeep diff -f shop"
	c.Args = func(c *cobra.Command, args []string) error {
		if o.dir != "" {
			return noArguments(c, args)
		}
		return versions(c, args)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.dir != "":
			return a.apply(cmd.Context(), o)
		case o.prune:
			return usagef("--prune goes with -f DIR")
		case len(o.env) > 0:
			return usagef("--env goes with -f DIR")
		}
		return compare(cmd, args)
	}
	o.flags(c, "folder of configuration to compare with the server", "with -f: what was applied from the folder and is not in it any more differs too")
	return c
}

// application is one apply.
type application struct {
	a  *app
	cl *client
	applyOptions
	folder    *declare.Folder
	manifests [][]byte          // of the folder, then of its imports
	places    []declare.Place   // where they come from
	has       map[string]string // ids of the tools of all manifests, with the file of each
	notes     []string
	withheld  []string // variables that the import which is read asked for and --env does not name
	abouts    []about  // what the documents of imports say of themselves
	now       declare.Now
}

// apply plans, shows the plan, and carries it out unless o.dryRun is set.
func (a *app) apply(ctx context.Context, o applyOptions) error {
	dir, dryRun := o.dir, o.dryRun
	cl, err := a.connect()
	if err != nil {
		return notTwo(err)
	}
	x := &application{a: a, cl: cl, applyOptions: o, has: map[string]string{}}
	say, done := a.patience("reading " + dir)
	plan, err := x.plan(ctx, say)
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
		other := ""
		if len(p.Other) > 0 {
			other = fmt.Sprintf(", %d other", len(p.Other))
		}
		fmt.Fprintf(w, "%s: %s, %d by hand%s, %d the same\n\n", p.Folder, counted(len(p.Steps), "change"), len(p.ByHand), other, p.Same)
		err := table(w, "ACTION|KIND|WHAT|HOW", func(row func(...any)) {
			for _, s := range p.ByHand {
				row("by hand", s.Kind, s.ID, s.How)
			}
			for _, s := range p.Other {
				row("other", s.Kind, s.ID, s.How)
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
func (x *application) plan(ctx context.Context, say func(string)) (*declare.Plan, error) {
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
		return declare.Compare(f, x.now, x.prune), nil
	}
	for _, t := range f.Tools {
		x.manifests, x.places = append(x.manifests, t.Manifest), append(x.places, t.Place)
		x.has[t.ID] = t.File
	}
	for i, run := range runs {
		say(fmt.Sprintf("reading the import of %s:%d", f.Imports[i].File, f.Imports[i].Line))
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
	plan := declare.Compare(f, x.now, x.prune)
	before := len(f.Faults)
	if err := x.askWidths(ctx, plan); err != nil {
		return nil, err
	}
	if !x.dryRun && len(f.Faults) == 0 && len(plan.ByHand) == 0 {
		say("trying MCP servers")
		if err := x.tryServers(ctx, plan); err != nil {
			return nil, err
		}
	}
	plan.Faults, plan.Notes = append(plan.Faults, f.Faults[before:]...), append(plan.Notes, x.notes...)
	return plan, nil
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
	at := one.At("/" + one.Kind)
	if one.Kind == "openapi" && strings.Contains(source, "://") {
		if u, err := url.Parse(source); err != nil || u.User != nil {
			x.fault(at, "the address is not a URL without user and password; a folder has none of these")
		}
	}
	if one.Kind == "sql" {
		source = x.sqlSource(at, source, inside)
	}
	if one.Kind == "functions" || one.Kind == "toolbox" || one.Kind == "openapi" && !strings.HasPrefix(source, "http://") && !strings.HasPrefix(source, "https://") {
		source = inside(at, source)
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

// sqlSource checks a database of the folder.
func (x *application) sqlSource(at declare.Place, source string, inside func(declare.Place, string) string) string {
	t, err := sql.ParseTarget(source)
	switch {
	case err != nil:
		x.fault(at, "%v", err)
	case t.Password != "":
		x.fault(at, "the connection string has a password, and a folder has none: name the reference for calls under secret, and read the schema with --env %s", sqlPassword)
	case t.Dialect == "sqlite" && strings.Contains(source, "://"):
		inside(at, t.File)
	case t.Dialect == "sqlite":
		return inside(at, strings.TrimPrefix(source, "file:"))
	}
	return source
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
	where := fmt.Sprintf("%s:%d", one.File, one.Line)
	x.withheld = nil
	x.a.mayRead = func(name string) bool {
		if slices.Contains(x.env, name) {
			return true
		}
		if !slices.Contains(x.withheld, name) {
			x.withheld = append(x.withheld, name)
		}
		return false
	}
	withheld := func() string {
		if len(x.withheld) == 0 {
			return ""
		}
		return "; of the variables of this process it reads those alone that --env NAME allows, so not " + strings.Join(x.withheld, ", ")
	}
	x.a.collect = func(p *planned) error {
		for _, raw := range p.all {
			t, err := catalog.ParseManifest(raw)
			if err != nil {
				return err
			}
			if there := x.has[t.ID]; there != "" {
				x.fault(one.Place, "the import makes %s, which is in %s too", t.ID, there)
			}
			x.has[t.ID] = "the import of " + where
			x.folder.References(one.Place, t.Manifest)
			x.manifests, x.places = append(x.manifests, raw), append(x.places, declare.Place{File: one.File, Line: one.Line})
		}
		if p.about.namespace != "" && p.tools > 0 {
			x.abouts = append(x.abouts, p.about)
		}
		if p.refused > 0 {
			x.notes = append(x.notes, fmt.Sprintf("%s: %d of what it names do not become tools; toolkeep import %s --dry-run says why%s", where, p.refused, one.Kind, withheld()))
		}
		if p.tools == 0 {
			x.fault(one.Place, "nothing of it becomes a tool%s", withheld())
		}
		return nil
	}
	err := run(ctx)
	x.a.collect, x.a.mayRead = nil, nil
	var r *refusedError
	var failed *failure
	if err == nil || errors.As(err, &r) || ctx.Err() != nil || errors.As(err, &failed) && failed.code == exitUnavailable {
		return err
	}
	x.fault(one.Place, "%v%s", err, withheld())
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

// askServers compares the definitions. It starts and connects nothing: a folder may be compared before it was reviewed.
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
		if err != nil {
			if err := x.refused(s.Place, err); err != nil {
				return err
			}
		}
		x.now.Servers[s.Name] = answer.Definition
	}
	return nil
}

// tryServers has the server start or connect the MCP servers that are new or changed, before anything is changed.
func (x *application) tryServers(ctx context.Context, plan *declare.Plan) error {
	for _, step := range plan.Steps {
		if step.Kind != declare.KindServer || step.Action == declare.Remove {
			continue
		}
		s := x.server(step.ID)
		raw, err := x.cl.do(ctx, http.MethodPut, x.serverURL(s.Name, "dry_run"), s.Spec)
		if err == nil {
			x.notes = append(x.notes, serverNotes(raw)...)
		} else if err := x.refused(s.Place, err); err != nil {
			return err
		}
	}
	return nil
}

func (x *application) server(name string) declare.Server {
	return x.folder.Servers[slices.IndexFunc(x.folder.Servers, func(s declare.Server) bool { return s.Name == name })]
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
	return nil
}

// askLeft finds what was applied from the folder and is not in it, and what is called before what is in it.
func (x *application) askLeft(ctx context.Context) error {
	highest := map[string]*semver.Version{}
	for _, t := range x.now.Tools {
		v, err := semver.StrictNewVersion(t.Version)
		if err != nil {
			return fmt.Errorf("the server answers with the version %q of %s: %w", t.Version, t.ToolID, err)
		}
		if have := highest[t.ToolID]; have == nil || have.LessThan(v) {
			highest[t.ToolID] = v
		}
	}
	above := func(id, version string) bool {
		v, err := semver.StrictNewVersion(version)
		return err == nil && v.GreaterThan(highest[id])
	}
	var ids []string
	if err := x.cl.eachToolOf(ctx, url.Values{"folder": {x.folder.Name}, "include_deprecated": {"true"}}, func(t toolSummary) bool {
		if highest[t.ToolID] == nil {
			ids = append(ids, t.ToolID)
		}
		return true
	}); err != nil {
		return err
	}
	if err := x.cl.eachTool(ctx, "", func(t toolSummary) bool {
		if highest[t.ToolID] != nil && above(t.ToolID, t.LatestVersion) {
			ids = append(ids, t.ToolID)
		}
		return true
	}); err != nil {
		return err
	}
	for _, id := range ids {
		var all versionList
		var t struct{ Shared bool }
		if _, err := x.cl.get(ctx, "/api/v1/tools/"+url.PathEscape(id), &t); err != nil {
			return err
		}
		if t.Shared != x.folder.Shared {
			continue // of a folder of the same name that is not this one
		}
		if _, err := x.cl.get(ctx, "/api/v1/tools/"+url.PathEscape(id)+"/versions", &all); err != nil {
			return err
		}
		for _, v := range all.Versions {
			switch l := v.Lifecycle; {
			case highest[id] != nil && !above(id, v.Version) || l.State == toolkeep.Blocked || l.State == toolkeep.Removed:
			case l.Folder == x.folder.Name:
				x.now.LeftTools = append(x.now.LeftTools, id+"@"+v.Version)
			case highest[id] != nil && l.State == toolkeep.Active:
				x.now.Above = append(x.now.Above, id+"@"+v.Version)
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
	for _, s := range x.folder.Servers {
		if n := specs[s.Name].waiting; err == nil && n > 0 && x.now.Servers[s.Name] == "same" {
			err = x.noteWaiting(ctx, s.Name, n)
		}
	}
	return err
}

// noteWaiting tells of tools of an MCP server that wait. Where none is published, its first import may have been interrupted.
func (x *application) noteWaiting(ctx context.Context, name string, n int) error {
	published := false
	if err := x.cl.eachTool(ctx, name, func(t toolSummary) bool {
		published = true
		return false
	}); err != nil {
		return err
	}
	if !published {
		x.now.Unaccepted = append(x.now.Unaccepted, name)
	} else {
		x.notes = append(x.notes, fmt.Sprintf("of the MCP server %s, %s for `toolkeep servers accept %s`", name, counted(n, "tool waits", "tools wait"), name))
	}
	return nil
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
