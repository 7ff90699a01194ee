package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
	"github.com/toolkeep/toolkeep/control/imports"
)

func (a *app) importCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "import openapi|mcp|manifest|functions|grpc|sql|toolbox",
		Short:   "Bring tools into the catalogue",
		Example: "  toolkeep import openapi petstore.yaml --dry-run\n  toolkeep import mcp files -- npx -y @modelcontextprotocol/server-filesystem /srv/data\n  toolkeep import manifest greet.yaml",
	})
	c.AddCommand(a.importOpenAPICmd(), a.importMCPCmd(), a.importManifestCmd(), a.importSQLCmd(), a.importToolboxCmd(), a.importFunctionsCmd(), a.importGRPCCmd())
	return c
}

func (a *app) importOpenAPICmd() *cobra.Command {
	o := openapi.Options{}
	var secrets, overlays []string
	var dryRun, force, shared, verbose bool
	c := &cobra.Command{
		Use:   "openapi FILE|URL",
		Short: "Turn every operation of an OpenAPI document into a tool",
		Long: `Turn every operation of an OpenAPI 2.0, 3.0, 3.1 or 3.2 document into a tool, or say why not.

Imported again, unchanged operations keep their version and changed ones get the SemVer bump that
the change calls for. --dry-run prints the plan and needs no running server (without one, every
operation counts as new).`,
		Example: `  toolkeep import openapi petstore.yaml --dry-run
  toolkeep import openapi https://api.example.com/openapi.json --namespace shop
  toolkeep import openapi api.yaml --server http://127.0.0.1:9000 --secret ApiKeyAuth=env://TOOLKEEP_SECRET_SHOP`,
		Args: arguments(1, 1, "the document's file or URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNamespace(o.Namespace); err != nil {
				return err
			}
			if err := ofOtherImport(args[0]); err != nil {
				return err
			}
			o.Location = args[0]
			o.Client = &http.Client{Timeout: 30 * time.Second}
			if err := parseSecrets(&o, secrets); err != nil {
				return err
			}
			for _, name := range overlays {
				text, err := readFile(name)
				if err != nil {
					return usagef("--overlay: %v", err)
				}
				o.Overlays = append(o.Overlays, openapi.Overlay{Name: name, Text: text})
			}
			err := a.importOpenAPI(cmd.Context(), o, importChoice{dryRun, force, shared, verbose})
			var unread *toolkeep.Error
			if u, bad := url.Parse(args[0]); errors.As(err, &unread) && unread.Code == toolkeep.ImportFailed && bad == nil && u.Host != "" &&
				(strings.HasSuffix(u.Path, "/mcp") || strings.HasSuffix(u.Path, "/sse")) {
				fmt.Fprintln(a.stderr, "toolkeep: the address looks like that of an MCP server, which is imported by `toolkeep import mcp NAME --url ADDRESS`")
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.Namespace, "namespace", "", "namespace of the tools; made from the document's title if absent")
	f.StringVar(&o.Root, "root", "", "`folder` around the document's own, in which files named by $ref may be; the document's own if absent")
	f.StringVar(&o.Server, "server", "", "base URL to call instead of the document's servers")
	f.StringArrayVar(&secrets, "secret", nil, "secret of a security scheme, `SCHEME=REFERENCE`: secret://NAME, env://NAME, file:///PATH or vault://PATH#FIELD; repeatable")
	f.StringToStringVar(&o.Schemes, "auth", nil, "what a security scheme is that the document does not define, `SCHEME=header:NAME`, query:NAME, cookie:NAME, bearer or basic; repeatable")
	f.StringVar(&o.DeepLists, "deep-lists", "", "how style deepObject writes the elements of a list: `indices` (a[0]=1, the default), brackets (a[]=1) or repeat (a=1)")
	f.StringArrayVar(&o.Choice.Include, "include", nil, "only operations that fit the `PATTERN` id:list*, path:/v1/*, tag:pets or method:GET, where * is any characters; repeatable; remembered for the next import of the document, until --include ''")
	f.StringArrayVar(&o.Choice.Exclude, "exclude", nil, "no operations that fit the `PATTERN`, written as for --include; repeatable; remembered until --exclude ''")
	f.StringArrayVar(&o.Choice.Names, "name-rule", nil, "a rule `REGEXP=REPLACEMENT` for the names that operationIds become, such as '^api_v1_(.*)=$1'; repeatable; remembered until --name-rule ''")
	f.StringArrayVar(&overlays, "overlay", nil, "change the document with this OpenAPI Overlay `FILE` first; repeatable; not remembered")
	f.BoolVar(&dryRun, "dry-run", false, "print the plan and change nothing")
	f.BoolVar(&force, "force", false, "publish breaking changes under the bump as it is; recorded")
	f.BoolVar(&shared, "shared", false, "the tools belong to all tenants")
	f.BoolVar(&verbose, "all", false, "list unchanged tools too")
	return a.withJSON(c)
}

// ofOtherImport names the import that a location belongs to, if its scheme says so.
func ofOtherImport(location string) error {
	scheme, rest, ok := strings.Cut(location, "://")
	if !ok {
		return nil
	}
	switch strings.ToLower(scheme) {
	case "grpc":
		return usagef("a gRPC server is imported by `toolkeep import grpc %s`, with --plaintext if it speaks without TLS", strings.TrimRight(rest, "/"))
	case "grpcs":
		return usagef("a gRPC server is imported by `toolkeep import grpc %s`", strings.TrimRight(rest, "/"))
	case "postgres", "postgresql", "mysql", "mariadb", "sqlite":
		return usagef("a database is imported by `toolkeep import sql`, with its connection string and the tables")
	}
	return nil
}

type importChoice struct{ dryRun, force, shared, all bool }

func parseSecrets(o *openapi.Options, secrets []string) error {
	for _, s := range secrets {
		scheme, ref, ok := strings.Cut(s, "=")
		if !ok || scheme == "" || !strings.Contains(ref, "://") {
			return usagef("--secret %s=…: write SCHEME=env://NAME, or another reference (secret://, file://, vault://); never give the secret itself on the command line", scheme)
		}
		if o.Auth == nil {
			o.Auth = map[string]string{}
		}
		o.Auth[scheme] = ref
	}
	return nil
}

func (a *app) importOpenAPI(ctx context.Context, o openapi.Options, choice importChoice) error {
	return a.importPlan(ctx, o.Location, choice, func(previous source.Previous) (*planned, error) {
		o.Previous = previous
		var listing error
		cl, err := a.connect()
		if err == nil {
			if a.collect == nil { // a folder says all of it itself
				o.Choices = func(namespace string) (map[string]openapi.Choice, error) {
					all, err := cl.choices(ctx, namespace, choice.shared)
					if err != nil && choice.dryRun { // which needs no server
						a.warnUnknownChoice(err)
						return nil, nil
					}
					return all, err
				}
			}
			o.Published = func(namespace string) (ids []string) {
				listing = cl.eachTool(ctx, namespace, func(t toolSummary) bool {
					ids = append(ids, t.ToolID)
					return true
				})
				return ids
			}
		}
		plan, err := openapi.Read(ctx, o)
		if err != nil {
			return nil, err
		}
		if listing != nil && !choice.dryRun { // which needs no server
			plan.Warnings = append(plan.Warnings, "the published tools could not be listed, so that those whose operation left the document are not named: "+listing.Error())
		}
		all := make([][]byte, len(plan.Tools))
		for i, t := range plan.Tools {
			all[i] = t.Manifest
		}
		return &planned{plan.Changed(), len(plan.Tools), len(plan.Refused), func() error { return a.showPlan(imports.PlanOf(plan), choice.all) }, all, about{plan.Namespace, plan.About, plan.Title, plan.Choice}}, nil
	})
}

func (a *app) warnUnknownChoice(err error) {
	fmt.Fprintln(a.stderr, "toolkeep: warning: what the last import chose is not known, and every operation counts that no flag excludes:", err)
}

// choices asks for the choices that are kept for a namespace, by the titles of documents.
func (c *client) choices(ctx context.Context, namespace string, shared bool) (map[string]openapi.Choice, error) {
	var answer struct {
		Choices []struct {
			Title string `json:"title"`
			openapi.Choice
		} `json:"choices"`
	}
	if _, err := c.get(ctx, choicesOf(namespace)+"?shared="+strconv.FormatBool(shared), &answer); err != nil {
		return nil, err
	}
	all := map[string]openapi.Choice{}
	for _, one := range answer.Choices {
		all[one.Title] = one.Choice
	}
	return all, nil
}

func choicesOf(namespace string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/choices"
}

func (a *app) showPlan(plan *imports.Plan, all bool) error {
	changes := map[string]int{}
	for _, t := range plan.Tools {
		changes[t.Change]++
	}
	raw, err := json.Marshal(struct {
		*imports.Plan
		Changes map[string]int `json:"changes"`
	}{plan, changes})
	if err != nil {
		return err
	}
	head := fmt.Sprintf("%s %s: %d operations, %d tools, %d refused", plan.Title, plan.Version, plan.Operations, len(plan.Tools), len(plan.Refused))
	if plan.Excluded > 0 {
		head += fmt.Sprintf(", %d excluded", plan.Excluded)
	}
	return a.printPlan(raw, head, "TOOL|VERSION|CHANGE|METHOD|PATH", func(row func(...any)) {
		for _, t := range plan.Tools {
			if all || t.Change != source.ChangeUnchanged {
				row(t.Name, t.Version, t.Change, t.Method, t.Path)
			}
		}
	}, func(row func(...any)) {
		for _, r := range plan.Refused {
			row(r.Operation, r.Reason)
		}
	}, plan.Warnings)
}

// previousTools looks up published tools, and keeps the first error other than not found.
type previousTools struct {
	ctx     context.Context
	client  *client
	say     func(string)
	asked   int
	err     error
	offline bool
}

// offline reports whether no server answers. In a dry run everything then counts as new; otherwise it is an error.
func (c *client) offline(ctx context.Context, dryRun bool) (bool, error) {
	_, err := c.get(ctx, "/health/live", nil)
	if err == nil || dryRun && ctx.Err() == nil {
		return err != nil, nil
	}
	return true, err
}

func (p *previousTools) find(id string) *toolkeep.Tool {
	if p.offline || p.err != nil {
		return nil
	}
	p.asked++
	p.say(fmt.Sprintf("comparing with what is published, %d tools", p.asked))
	t, err := p.client.newest(p.ctx, id)
	if err != nil {
		var r *refusedError
		if !errors.As(err, &r) || r.Code != string(toolkeep.ToolNotFound) {
			p.err = err
		}
		return nil
	}
	tool, err := catalog.ParseManifest(t.Manifest)
	if err != nil {
		p.err = err
		return nil
	}
	return tool
}

// Limits of one batch: the server's body limit is 16 MiB.
const (
	batchBytes = 8 << 20
	batchTools = 500
)

type published struct {
	ToolID  string `json:"tool_id"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Bump    string `json:"bump"`
	Created bool   `json:"created"`

	Deprecated []string `json:"deprecated"`
	Warnings   []struct {
		Message string `json:"message"`
	} `json:"warnings"`
}

// showDeprecated lists the versions replaced by new ones.
func showDeprecated(w io.Writer, list []published) {
	for _, p := range list {
		for _, v := range p.Deprecated {
			fmt.Fprintf(w, "%s@%s becomes deprecated: too many versions are active\n", p.ToolID, v)
		}
	}
}

// publish registers manifests in batches, each all or nothing.
func (c *client) publish(ctx context.Context, manifests [][]byte, choice importChoice, say func(string)) ([]published, error) {
	var all []published
	options := map[string]any{"force": choice.force, "shared": choice.shared, "dry_run": choice.dryRun}
	err := c.inBatches(ctx, manifests, options, func(raw []byte, _ int) error {
		var answer struct {
			Published []published `json:"published"`
		}
		if err := decode(raw, &answer); err != nil {
			return err
		}
		all = append(all, answer.Published...)
		say(fmt.Sprintf("published %d of %d tools", len(all), len(manifests)))
		return nil
	})
	return all, err
}

// inBatches sends manifests to batch-register with the options, and hands over each answer with the index of its first manifest.
func (c *client) inBatches(ctx context.Context, manifests [][]byte, options map[string]any, each func(answer []byte, first int) error) error {
	for first := 0; first < len(manifests); {
		n, size := first, 0
		for n < len(manifests) && n-first < batchTools && (n == first || size+len(manifests[n]) <= batchBytes) {
			size += len(manifests[n])
			n++
		}
		tools := make([]map[string]any, 0, n-first)
		for _, raw := range manifests[first:n] {
			tools = append(tools, map[string]any{"manifest": json.RawMessage(raw)})
		}
		body := maps.Clone(options)
		body["tools"] = tools
		raw, err := c.post(ctx, "/api/v1/tools/batch-register", body, nil)
		if err == nil {
			err = each(raw, first)
		}
		if err != nil {
			return err
		}
		first = n
	}
	return nil
}

func (a *app) importManifestCmd() *cobra.Command {
	var choice importChoice
	c := &cobra.Command{
		Use:   "manifest FILE…|-",
		Short: "Publish tools from manifests in JSON or YAML",
		Long:  "Publish tools from manifests: JSON, YAML, several YAML documents in a file, or - for standard\ninput. All are published or none. The format is contracts/manifest.schema.json.",
		Example: `  toolkeep import manifest greet.yaml --dry-run
  toolkeep import manifest greet.yaml weather.json
  cat greet.yaml | toolkeep import manifest -`,
		Args: arguments(1, -1, "a manifest's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var manifests [][]byte
			for _, name := range args {
				if err := ofOtherImport(name); err != nil {
					return err
				}
				got, err := a.readManifests(name)
				if err != nil {
					return err
				}
				if len(got) == 0 {
					return usagef("%s holds no manifest", orStdin(name))
				}
				for _, raw := range got {
					if what := otherDocument(raw); what != "" {
						return unreadable(name, "it is no manifest but "+what)
					}
				}
				manifests = append(manifests, got...)
			}
			return a.publishManifests(cmd.Context(), manifests, choice)
		},
	}
	f := c.Flags()
	f.BoolVar(&choice.dryRun, "dry-run", false, "check everything and change nothing")
	f.BoolVar(&choice.force, "force", false, "publish in spite of breaking changes; recorded")
	f.BoolVar(&choice.shared, "shared", false, "the tools belong to all tenants")
	return a.withJSON(c)
}

func (a *app) readManifests(name string) ([][]byte, error) {
	var raw []byte
	var err error
	if name == "-" {
		raw, err = io.ReadAll(io.LimitReader(a.stdin, maxInput))
	} else {
		raw, err = readFile(name)
	}
	if err != nil {
		return nil, usagef("%v", err)
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return nil, nil
	}
	ext := strings.ToLower(filepath.Ext(name))
	if ext == ".yaml" || ext == ".yml" || ext != ".json" && raw[0] != '{' {
		docs, err := catalog.ManifestsFromYAML(raw)
		if err != nil {
			return nil, unreadable(name, toolkeep.AsError(err).Message)
		}
		for i, doc := range docs {
			if len(doc) == 0 || doc[0] != '{' {
				return nil, unreadable(name, fmt.Sprintf("document %d of %d is not a manifest: it is not an object with fields", i+1, len(docs)))
			}
		}
		return docs, nil
	}
	if !json.Valid(raw) {
		_, err := catalog.ParseManifest(raw)
		return nil, unreadable(name, strings.TrimPrefix(catalog.FaultText(err), "at : "))
	}
	return [][]byte{raw}, nil
}

// otherDocument says what a document is that another import reads.
func otherDocument(raw []byte) string {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return ""
	}
	for _, other := range [][2]string{{"openapi", "an OpenAPI document: `toolkeep import openapi` reads it"}, {"swagger", "an OpenAPI document: `toolkeep import openapi` reads it"},
		{"mcpServers", "a client's file of MCP servers: `toolkeep import mcp --from` reads it"}} {
		if _, has := m[other[0]]; has {
			return other[1]
		}
	}
	return ""
}

// unreadable is the error for a file that is not a manifest in JSON or YAML.
func unreadable(name, why string) error {
	return &failure{code: exitUsage, err: toolkeep.NewError(toolkeep.InvalidManifest, "%s: %s", orStdin(name), why)}
}

func orStdin(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// warnOfCache warns of manifests that set a cache lifetime but do not enable the result cache; the contract then
// disables it.
func (a *app) warnOfCache(manifests [][]byte) {
	for _, raw := range manifests {
		var m struct {
			ToolID string `json:"tool_id"`
			Cache  *struct {
				Policy *string          `json:"policy"`
				TTL    *json.RawMessage `json:"ttl_s"`
			} `json:"cache"`
		}
		if json.Unmarshal(raw, &m) == nil && m.Cache != nil && m.Cache.Policy == nil && m.Cache.TTL != nil {
			fmt.Fprintf(a.stderr, "toolkeep: warning: %s: cache has ttl_s and no policy, which then is none, so no result is cached; write policy: ttl\n", m.ToolID)
		}
	}
}

func (a *app) publishManifests(ctx context.Context, manifests [][]byte, choice importChoice) error {
	a.warnOfCache(manifests)
	cl, err := a.connect()
	if err != nil {
		return err
	}
	say, stop := a.patience(fmt.Sprintf("publishing %d tools", len(manifests)))
	done, err := cl.publish(ctx, manifests, choice, say)
	stop()
	if err != nil {
		return err
	}
	for _, p := range done {
		for _, w := range p.Warnings {
			fmt.Fprintf(a.stderr, "toolkeep: warning: %s: %s\n", p.ToolID, w.Message)
		}
	}
	raw, err := json.Marshal(map[string]any{"published": done})
	if err != nil {
		return err
	}
	return a.show(raw, func(w io.Writer) error {
		err := table(w, "TOOL|VERSION|BUMP|NEW|DIGEST", func(row func(...any)) {
			for _, p := range done {
				isNew := "yes"
				if !p.Created {
					isNew = "no, it exists"
				}
				row(p.ToolID, p.Version, p.Bump, isNew, p.Digest)
			}
		})
		showDeprecated(w, done)
		if choice.dryRun {
			fmt.Fprintln(w, "Nothing was changed (--dry-run).")
		}
		return err
	})
}
