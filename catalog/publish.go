package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
)

// MaxBatch is the maximum number of manifests per Publish.
const MaxBatch = 20_000

// PublishOptions are the options of Publish.
type PublishOptions struct {
	Force  bool // publish despite breaking changes; needs catalog:admin and is recorded
	DryRun bool // check everything, write nothing
	Shared bool // the tools belong to all tenants; needs catalog:admin
	// Folder is the name of the folder of configuration that the manifests are applied from, "" without one. New versions keep
	// it, and a version of it that was pruned (toolkeep.CausePruned) becomes active again with the same content.
	Folder string
}

// Published is the outcome for one manifest.
type Published struct {
	ToolID  string `json:"tool_id"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Bump    string `json:"bump"`    // SemVer size of the change from the version below: major, minor, patch, none; new if there is none below
	Created bool   `json:"created"` // false: the same content is already published
	// State is that of the version, after the publication; a version that exists keeps it, unless Restored.
	State      toolkeep.VersionState `json:"state"`
	Restored   bool                  `json:"restored,omitempty"` // it was pruned, and its folder has it again
	Breaking   []Difference          `json:"breaking,omitempty"`
	Deprecated []string              `json:"deprecated,omitempty"` // versions deprecated by the limit of active ones
	// Warnings name the manifest's fields that this build does not honour: E3015, or the code that calls are refused with.
	Warnings []toolkeep.Warning `json:"warnings,omitempty"`
}

// ManifestFaults lists the faults of one manifest in a batch. A refusal has at most toolkeep.MaxFaults of these, which
// share the limits of toolkeep.BoundFaults.
type ManifestFaults struct {
	Index   int              `json:"index"` // from 0
	ToolID  string           `json:"tool_id,omitempty"`
	Version string           `json:"version,omitempty"`
	Errors  []toolkeep.Fault `json:"errors"`
}

// Breaking lists the breaking changes of one tool. A refusal has at most toolkeep.MaxFaults of these, with as many
// differences in all.
type Breaking struct {
	Index       int          `json:"index"`
	ToolID      string       `json:"tool_id"`
	From        string       `json:"from"`
	Version     string       `json:"version"`
	Differences []Difference `json:"differences"`
}

// Publish checks all manifests and adds their versions, all or none. It returns when this catalogue shows them.
//
// Each new version is compared with the highest stable one below it, also below 1.0.0. A breaking change needs a
// higher major number, or Force. Publishing the same content again is not an error (Created is false). Versions
// over the limit of active ones become deprecated, lowest first, in the same change.
//
// Errors: E3201 without catalog:publish, without catalog:admin for Force and Shared, or without catalog:network for
// a manifest with permissions.network, catalog:files for one with permissions.filesystem, secrets:use for one that
// names a secret, servers:admin for one of kind mcp; E3301 for no or more than MaxBatch manifests; E3008 for
// invalid manifests (details.errors, with pointers preceded by the index if there are several, and
// details.manifests by manifest) and for breaking changes (details.breaking); E3007 if an id belongs to another
// tenant or a version exists with other content; E3003 while the catalogue is not running; E3963 if other nodes
// keep changing the same versions; E3965 if the store fails.
func (c *Catalog) Publish(ctx context.Context, p *toolkeep.Principal, manifests [][]byte, o PublishOptions) ([]Published, error) {
	list := make([]submitted, len(manifests))
	for i, raw := range manifests {
		list[i].raw = raw
	}
	return c.publish(ctx, p, list, o)
}

// PublishChecked is Publish of manifests that Check returned.
func (c *Catalog) PublishChecked(ctx context.Context, p *toolkeep.Principal, manifests []*Checked, o PublishOptions) ([]Published, error) {
	list := make([]submitted, len(manifests))
	for i, m := range manifests {
		list[i].checked = m
	}
	return c.publish(ctx, p, list, o)
}

// submitted is one manifest of a publication.
type submitted struct {
	raw     []byte // until it is checked
	checked *Checked
	whole   *toolkeep.Tool // with its tenant and the defaults of this node
}

func (c *Catalog) publish(ctx context.Context, p *toolkeep.Principal, list []submitted, o PublishOptions) ([]Published, error) {
	if err := c.mayPublish(p, o); err != nil {
		return nil, err
	}
	if o.Folder != "" {
		if err := toolkeep.CheckFolder(o.Folder); err != nil {
			return nil, err
		}
	}
	if len(list) == 0 || len(list) > MaxBatch {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "%d manifests were sent; send 1 to %d", len(list), MaxBatch)
	}
	tenant := p.Tenant
	if o.Shared {
		tenant = ""
	}
	if err := c.checkAll(ctx, list, tenant); err != nil {
		return nil, err
	}
	if err := mayUse(p, list); err != nil {
		return nil, err
	}
	if !c.running() {
		return nil, unreadable(errors.New("catalog: Publish without Start"))
	}
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = s.whole.ID
	}
	defer c.busy.take(ids)()

	var plan *plan
	err := c.afresh(ctx, func() error {
		plan = newPlan(c, p, o)
		if err := plan.add(list); err != nil || o.DryRun || len(plan.changes) == 0 {
			return err
		}
		return c.apply(ctx, plan.changes)
	})
	if err != nil {
		return nil, err
	}
	return plan.results, nil
}

// afreshTries is how often a conflicting change is retried.
const afreshTries = 5

// afresh computes and makes a change again if another node has changed the same versions meanwhile.
func (c *Catalog) afresh(ctx context.Context, change func() error) error {
	for try := 1; ; try++ {
		err := change()
		if try == afreshTries || !errors.Is(err, toolkeep.ErrStale) {
			return err
		}
		head, herr := c.store.Head(ctx)
		if herr == nil {
			herr = c.await(ctx, head)
		}
		if herr != nil {
			return err
		}
	}
}

func (c *Catalog) mayPublish(p *toolkeep.Principal, o PublishOptions) error {
	if p == nil || p.Tenant == "" || !p.May(toolkeep.PermPublish) {
		return denied(toolkeep.PermPublish, "publish tools")
	}
	if o.Force && !p.May(toolkeep.PermLifecycle) {
		return denied(toolkeep.PermLifecycle, "publish in spite of breaking changes")
	}
	if o.Shared && !p.May(toolkeep.PermLifecycle) {
		return denied(toolkeep.PermLifecycle, "publish tools for all tenants")
	}
	if o.Shared {
		return c.mayShare(p)
	}
	return nil
}

// mayShare protects tools of all tenants from other tenants' administrators.
func (c *Catalog) mayShare(p *toolkeep.Principal) error {
	if c.home == "" || p.Tenant == c.home {
		return nil
	}
	return toolkeep.NewError(toolkeep.PermissionDenied, "tools that belong to all tenants are published and changed by administrators of the tenant %s only", c.home).
		With("reason", "RBAC_DENIED")
}

// guards are what a manifest uses that needs more than the right to publish: hosts of permissions.network bypass the
// SSRF guard, folders of permissions.filesystem are the operator's, a named secret is exposed to a server of the
// publisher's choice, and tools of MCP servers are pinned and reviewed. uses returns "" for a manifest without it.
var guards = []struct {
	permission string
	uses       func(*toolkeep.Manifest) string
}{
	{toolkeep.PermNetwork, func(m *toolkeep.Manifest) string {
		if m.Permissions == nil || len(m.Permissions.Network) == 0 {
			return ""
		}
		return "opens " + m.Permissions.Network[0].Host + " to itself under permissions.network"
	}},
	{toolkeep.PermFiles, func(m *toolkeep.Manifest) string {
		if m.Permissions == nil || len(m.Permissions.Filesystem) == 0 {
			return ""
		}
		return "uses the folder " + m.Permissions.Filesystem[0].Path + " of the server under permissions.filesystem"
	}},
	{toolkeep.PermSecrets, func(m *toolkeep.Manifest) string {
		if !slices.ContainsFunc(m.Auth, func(s toolkeep.AuthSpec) bool { return s.Secret != "" || s.Settings["also"] != nil }) {
			return ""
		}
		return "uses a secret of the server"
	}},
	{toolkeep.PermServers, func(m *toolkeep.Manifest) string {
		if m.Execution.Kind != "mcp" {
			return ""
		}
		return "is a tool of an MCP server"
	}},
}

// mayUse refuses the first manifest that uses what the principal may not.
func mayUse(p *toolkeep.Principal, list []submitted) error {
	for _, g := range guards {
		if p.May(g.permission) {
			continue
		}
		for _, s := range list {
			if what := g.uses(s.whole.Manifest); what != "" {
				return denied(g.permission, "publish "+s.whole.ID+", which "+what)
			}
		}
	}
	return nil
}

func denied(permission, what string) error {
	return toolkeep.NewError(toolkeep.PermissionDenied, "to %s you need the permission %s; ask an administrator for a role that grants it", what, permission).
		With("reason", "RBAC_DENIED").With("permission", permission)
}

// checkAll checks every manifest that is not checked yet, and that this build can execute it, and collects all faults.
func (c *Catalog) checkAll(ctx context.Context, list []submitted, tenant string) error {
	var bad []ManifestFaults
	refused, leftOut := 0, 0 // manifests with faults; faults of those that are not in bad
	refuse := func(f ManifestFaults) {
		if refused++; len(bad) < toolkeep.MaxFaults {
			bad = append(bad, f)
		} else {
			leftOut += len(f.Errors)
		}
	}
	for i := range list {
		if err := ctx.Err(); err != nil {
			return toolkeep.AsError(err)
		}
		s := &list[i]
		if s.checked == nil {
			checked, err := Check(s.raw)
			if err != nil {
				var e *toolkeep.Error
				if !errors.As(err, &e) || e.Code != toolkeep.InvalidManifest {
					return err
				}
				faults, _ := e.Details["errors"].([]toolkeep.Fault)
				id, version := named(s.raw)
				refuse(ManifestFaults{Index: i, ToolID: id, Version: version, Errors: faults})
				continue
			}
			s.checked, s.raw = checked, nil
		}
		s.whole = s.checked.with(c.read.defaults)
		s.whole.Tenant = tenant
		if faults := c.checkKind(s.whole.Manifest); len(faults) > 0 {
			refuse(ManifestFaults{Index: i, ToolID: s.whole.ID, Version: s.whole.Version, Errors: sortFaults(faults)})
		}
	}
	if len(bad) > 0 {
		return batchFaults(bad, refused, leftOut, len(list))
	}
	return nil
}

func (c *Catalog) checkKind(m *toolkeep.Manifest) []toolkeep.Fault {
	checker := c.checkers[m.Execution.Kind]
	if checker == nil {
		kinds := slices.Sorted(maps.Keys(c.checkers))
		can := "it executes none"
		if len(kinds) > 0 {
			can = "it executes " + strings.Join(kinds, ", ")
		}
		return []toolkeep.Fault{{Pointer: "/execution/kind", Rule: "kind",
			Message: fmt.Sprintf("this build cannot execute kind %s; %s", m.Execution.Kind, can)}}
	}
	return checker(m)
}

// batchFaults makes E3008 for some of n manifests: refused ones, of which bad has the first, and leftOut faults of the
// others.
func batchFaults(bad []ManifestFaults, refused, leftOut, n int) error {
	if n == 1 {
		all := bad[0].Errors
		bad[0].Errors = toolkeep.BoundFaults(all)
		return invalid(bad[0].ToolID, bad[0].Version, all).With("manifests", bad)
	}
	var all []toolkeep.Fault
	for i, m := range bad {
		bad[i].Errors = toolkeep.ShareFaults(m.Errors, len(bad))
		for _, f := range m.Errors {
			f.Pointer = "/" + strconv.Itoa(m.Index) + f.Pointer
			all = append(all, f)
		}
	}
	if leftOut > 0 {
		all = append(all, toolkeep.MoreFaults(leftOut))
	}
	all = toolkeep.BoundFaults(all)
	return toolkeep.FaultsError(toolkeep.InvalidManifest,
		fmt.Sprintf("%d of %d manifests are not valid and nothing was published; the first fault: %s: %s", refused, n, all[0].Pointer, all[0].Message), all).
		With("manifests", bad)
}

// apply commits the changes and waits until the snapshot shows them.
func (c *Catalog) apply(ctx context.Context, changes []toolkeep.Change) error {
	if err := c.store.Apply(ctx, changes...); err != nil {
		switch {
		case errors.Is(err, toolkeep.ErrVersionExists):
			return toolkeep.NewError(toolkeep.DuplicateTool, "another node published one of these versions with other content at the same time; read the versions and publish under a new number").Because(err)
		case errors.Is(err, toolkeep.ErrStale):
			return conflict("a version").Because(err)
		case errors.Is(err, toolkeep.ErrNotFound):
			return toolkeep.NewError(toolkeep.ToolVersionNotFound, "the version is no longer in the store; read the versions again").Because(err)
		}
		var e *toolkeep.Error
		if errors.As(err, &e) {
			return e
		}
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the store could not take the change and nothing was changed; try again").Because(err)
	}
	// The change is committed now, so a failure to see it is not the caller's.
	head, err := c.store.Head(context.WithoutCancel(ctx))
	if err == nil {
		err = c.await(ctx, head)
	}
	if err != nil {
		c.log.Warn("a change of the catalogue was stored, but this node has not read it yet", "error", err)
	}
	return nil
}

// plan is one Publish in preparation: the catalogue as it will be.
type plan struct {
	c       *Catalog
	p       *toolkeep.Principal
	o       PublishOptions
	now     time.Time
	from    *Snapshot
	entries map[toolKey]*entry
	results []Published
	changes []toolkeep.Change
	refused []Breaking
}

func newPlan(c *Catalog, p *toolkeep.Principal, o PublishOptions) *plan {
	return &plan{c: c, p: p, o: o, now: c.today(), from: c.current.Load(), entries: map[toolKey]*entry{}}
}

// add plans all tools, those of one id from the lowest version up, so that each is compared with the one below it.
func (pl *plan) add(list []submitted) error {
	pl.results = make([]Published, len(list))
	coming := make([]incoming, len(list))
	for i, s := range list {
		v, err := pl.c.read.fresh(s)
		if err != nil { // Check has checked the version
			return toolkeep.AsError(err)
		}
		coming[i] = incoming{i, v, s.whole}
	}
	slices.SortStableFunc(coming, func(a, b incoming) int {
		if c := strings.Compare(a.v.Tool.ID, b.v.Tool.ID); c != 0 {
			return c
		}
		return compareVersions(a.v, b.v)
	})
	for len(coming) > 0 {
		n := 1
		for n < len(coming) && coming[n].v.Tool.ID == coming[0].v.Tool.ID {
			n++
		}
		if err := pl.addTool(coming[:n]); err != nil {
			return err
		}
		coming = coming[n:]
	}
	if len(pl.refused) > 0 {
		return breaks(pl.refused)
	}
	return nil
}

type incoming struct {
	index int
	v     *version
	whole *toolkeep.Tool
}

// addTool plans the versions of one tool.
func (pl *plan) addTool(coming []incoming) error {
	t := coming[0].v.Tool
	if _, yes := pl.from.taken(t.Tenant, t.ID); yes {
		if t.Tenant == "" {
			return toolkeep.NewError(toolkeep.DuplicateTool, "a tenant has a tool %s of its own; choose another id for the shared one", t.ID).With("tool_id", t.ID)
		}
		return toolkeep.NewError(toolkeep.DuplicateTool, "%s belongs to all tenants; choose another id, or publish it as shared, which needs %s", t.ID, toolkeep.PermLifecycle).With("tool_id", t.ID)
	}
	key := &toolKey{id: t.ID, tenant: t.Tenant}
	e := pl.from.entry(*key)
	registered := e == nil
	var created []incoming
	last := -1 // the surplus is reported with the highest of the new versions
	for _, in := range coming {
		next, err := pl.addVersion(key, e, in)
		if err != nil {
			return err
		}
		if next != nil {
			e, last = next, in.index
			if pl.results[in.index].Created {
				created = append(created, in)
			}
		}
	}
	if last < 0 {
		return nil
	}
	e = pl.deprecateSurplus(e, last)
	for _, in := range coming {
		pl.results[in.index].State = e.find(in.v.Tool.Version).state()
	}
	return pl.write(e, created, registered)
}

// addVersion plans one version; nil if nothing changes.
func (pl *plan) addVersion(key *toolKey, e *entry, in incoming) (*entry, error) {
	t := in.v.Tool
	result := &pl.results[in.index]
	*result = Published{ToolID: t.ID, Version: t.Version, Digest: t.Digest, Bump: "none", Warnings: warnUnhonoured(in.whole)}
	if e != nil {
		for _, have := range e.versions {
			if !have.sem.Equal(in.v.sem) {
				continue
			}
			if have.Tool.Version != t.Version || have.Tool.Digest != t.Digest {
				return nil, exists(have.Tool, t)
			}
			if result.State = have.state(); pl.o.Folder == "" || pl.o.Folder != have.Life.Folder || result.State != toolkeep.Blocked || have.Life.Cause != toolkeep.CausePruned {
				return nil, nil
			}
			again := *have
			again.Life.Cause, again.Life.Reason = "", ""
			switch { // what it was when it was pruned
			case !again.Life.SunsetAt.IsZero():
				again.Life.State = toolkeep.Sunset
			case !again.Life.DeprecatedAt.IsZero():
				again.Life.State = toolkeep.Deprecated
			default:
				again.Life.State = toolkeep.Active
			}
			result.Restored = true
			versions := slices.Clone(e.versions)
			versions[slices.Index(versions, have)] = &again
			return newEntry(key, versions), nil
		}
	}
	result.Created, result.State = true, toolkeep.Active
	result.Bump = "new"
	life := toolkeep.Lifecycle{State: toolkeep.Active, PublishedAt: pl.now, PublishedBy: pl.p.Subject, Folder: pl.o.Folder}
	if below := e.below(in.v.sem); below != nil {
		old, err := below.Tool.Whole()
		if err != nil {
			return nil, err
		}
		cmp := Compare(old, in.whole)
		result.Bump = cmp.Bump
		if cmp.Bump == BumpMajor && in.v.sem.Major() == below.sem.Major() {
			result.Breaking = cmp.Breaking()
			life.Forced = pl.o.Force
			if !pl.o.Force {
				pl.refused = append(pl.refused, Breaking{in.index, t.ID, below.Tool.Version, t.Version, result.Breaking})
			}
		} else if cmp.Bump == BumpMajor {
			result.Breaking = cmp.Breaking()
		}
	}
	add := *in.v
	add.Life = life
	var versions []*version
	if e != nil {
		versions = slices.Clone(e.versions)
	}
	return newEntry(key, append(versions, &add)), nil
}

func exists(have, want *toolkeep.Tool) error {
	err := toolkeep.NewError(toolkeep.DuplicateTool,
		"%s exists with another content (%s, sent %s); versions never change, so publish under a new number", have.Ref(), have.Digest, want.Digest)
	if have.Version != want.Version {
		err = toolkeep.NewError(toolkeep.DuplicateTool,
			"%s differs from the existing %s in build metadata alone, which has no order; publish under a new number", want.Ref(), have.Ref())
	}
	return err.With("tool_id", want.ID).With("version", want.Version).With("existing_digest", have.Digest)
}

func breaks(refused []Breaking) error {
	slices.SortFunc(refused, func(a, b Breaking) int { return a.Index - b.Index })
	first := refused[0]
	major := "the next major number"
	if v, err := semver.StrictNewVersion(first.From); err == nil {
		major = v.IncMajor().String()
	}
	d := first.Differences[0]
	message := fmt.Sprintf("%s@%s would break callers of %s (%d breaking, the first at %s: %s); publish it as %s, or force it, which is recorded",
		first.ToolID, first.Version, first.From, len(first.Differences), toolkeep.ClipBytes(d.Pointer, 300), toolkeep.ClipBytes(d.Message, 300), major)
	if len(refused) > 1 {
		message += fmt.Sprintf("; %d tools of the batch break callers and nothing was published", len(refused))
	}
	faults := make([]toolkeep.Fault, 0, len(first.Differences))
	for _, b := range refused {
		for _, d := range b.Differences {
			f := toolkeep.Fault{Pointer: d.Pointer, Rule: "breaking", Message: d.Message}
			if len(refused) > 1 {
				f.Pointer = "/" + strconv.Itoa(b.Index) + f.Pointer
			}
			faults = append(faults, f)
		}
	}
	refused = refused[:min(len(refused), toolkeep.MaxFaults)]
	for i := range refused {
		d := slices.Clone(refused[i].Differences)
		d = d[:min(len(d), max(toolkeep.MaxFaults/len(refused), 1))]
		for k := range d {
			d[k].Pointer, d[k].Message = toolkeep.ClipBytes(d[k].Pointer, 300), toolkeep.ClipBytes(d[k].Message, 300)
		}
		refused[i].Differences = d
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, message, faults).With("breaking", refused)
}

// deprecateSurplus keeps only the highest active versions active.
func (pl *plan) deprecateSurplus(e *entry, index int) *entry {
	surplus := -pl.c.maxActive
	for _, v := range e.versions {
		if v.state() == toolkeep.Active {
			surplus++
		}
	}
	if surplus <= 0 {
		return e
	}
	versions := slices.Clone(e.versions)
	for i, v := range versions {
		if surplus == 0 {
			break
		}
		if v.state() != toolkeep.Active {
			continue
		}
		surplus--
		moved := *v
		moved.Life.State = toolkeep.Deprecated
		moved.Life.Reason = fmt.Sprintf("more than %d active versions", pl.c.maxActive)
		moved.Life.DeprecatedAt = pl.now
		moved.Life.RemoveAfter = pl.now.Add(pl.c.removeAfter)
		moved.Life.Successor = everything.moveTo(e, v)
		versions[i] = &moved
		pl.results[index].Deprecated = append(pl.results[index].Deprecated, v.Tool.Version)
	}
	return newEntry(e.key, versions)
}

// write turns the differences from the snapshot into changes and events.
func (pl *plan) write(e *entry, created []incoming, registered bool) error {
	old := pl.from.entry(*e.key)
	for _, v := range e.versions {
		before := old.find(v.Tool.Version)
		if before != nil && before.state() != v.state() {
			pl.changes = append(pl.changes, toolkeep.SetLifecycle{
				Tenant: v.Tool.Tenant, ToolID: v.Tool.ID, Version: v.Tool.Version, Life: v.Life, By: pl.p.Subject, From: &before.Life})
			if err := pl.event(eventChanged, stateData(v, before.state(), pl.p.Subject)); err != nil {
				return err
			}
		}
	}
	for _, in := range created {
		v := e.find(in.v.Tool.Version)
		pl.changes = append(pl.changes, toolkeep.PublishVersion{Version: v.Version})
		kind := eventChanged
		if registered {
			kind, registered = eventRegistered, false
		}
		if err := pl.event(kind, publishData(v, pl.results[in.index], pl.p.Subject)); err != nil {
			return err
		}
	}
	return nil
}

func (pl *plan) event(kind string, data map[string]any) error {
	change, err := appendEvent(kind, pl.p.Tenant, pl.now, data)
	if err == nil {
		pl.changes = append(pl.changes, change)
	}
	return err
}

// named reads the id and version of an invalid manifest, if readable.
func named(raw []byte) (id, version string) {
	tree, err := parseTree(raw)
	if err != nil {
		return "", ""
	}
	root, _ := tree.(map[string]any)
	return toolkeep.ClipBytes(text(root, "tool_id"), 200), toolkeep.ClipBytes(text(root, "version"), 200)
}
