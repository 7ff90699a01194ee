package imports

import (
	"context"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

// Batch is manifests that are published together.
type Batch struct {
	Entries []Entry
	// Partial publishes each tool by itself: those that are refused do not keep the
	// others back. All versions of one tool stand or fall together. Default all or none.
	Partial bool
	catalog.PublishOptions
	// Progress is told how many entries are done, at the start and now and then.
	Progress func(done int) // default none
}

// Entry is one manifest of a batch and what became of it: Published, or Error.
type Entry struct {
	Manifest []byte
	// Error of an entry of a partial batch may be set beforehand; it is left out then.
	Error *toolkeep.Error

	ToolID    string // of the manifest, "" where it has none
	Published *catalog.Published
	// Warnings are those of Published, and one for each tool that the manifest's
	// relationships or its fallback name and that does not exist for the publisher:
	// hidden ones are told like those that there never were.
	Warnings []toolkeep.Warning
}

// Publish publishes a batch and fills its entries. A partial one has no error of its own.
//
// Errors: those of catalog.Publish.
func (m *Imports) Publish(ctx context.Context, p *toolkeep.Principal, b *Batch) error {
	u := &publication{Batch: b, m: m, p: p, coming: map[string]bool{}, offers: map[string]bool{}}
	for i := range b.Entries {
		e := &b.Entries[i]
		var capabilities []string
		e.ToolID, capabilities = toolOf(e.Manifest)
		for _, name := range capabilities {
			u.offers[name] = true
		}
		u.coming[e.ToolID] = true
		if e.Error != nil {
			u.done++
		}
	}
	u.tell()
	if b.Partial {
		u.partly(ctx)
	} else if err := u.whole(ctx); err != nil {
		return err
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		if e.Published != nil {
			e.Warnings = append(append([]toolkeep.Warning{}, e.Published.Warnings...), u.unknownTools(e.Manifest)...)
		} else if e.Error == nil {
			e.Error = toolkeep.AsError(errors.New("a manifest of a batch was neither published nor refused"))
		}
	}
	return nil
}

// publication is a batch under way.
type publication struct {
	*Batch
	m      *Imports
	p      *toolkeep.Principal
	coming map[string]bool // ids of all tools of the batch
	offers map[string]bool // capabilities of all tools of the batch
	done   int
	faults int // told in the outcomes so far
}

func (u *publication) tell() {
	if u.Progress != nil {
		u.Progress(u.done)
	}
}

// publish sends the entries at these indexes to the catalogue.
func (u *publication) publish(ctx context.Context, at []int) error {
	manifests := make([][]byte, len(at))
	for k, i := range at {
		manifests[k] = u.Entries[i].Manifest
	}
	list, err := u.m.c.Catalog.Publish(ctx, u.p, manifests, u.PublishOptions)
	if err != nil {
		return err
	}
	for k := range list {
		u.Entries[at[k]].Published = &list[k]
	}
	u.done += len(list)
	return nil
}

func (u *publication) whole(ctx context.Context) error {
	at := make([]int, len(u.Entries))
	for i := range at {
		at[i] = i
	}
	return u.publish(ctx, at)
}

// maxFaults is how many faults of one manifest an outcome tells; all outcomes together tell
// toolkeep.MaxFaults. maxReason bounds the fault within a message, in bytes.
const (
	maxFaults = 20
	maxReason = 400
)

// chunk is how many manifests of a partial batch go into one transaction.
const chunk = 200

// partly publishes chunk by chunk. The versions of one tool are never parted.
func (u *publication) partly(ctx context.Context) {
	var order []string
	groups := map[string][]int{}
	for i := range u.Entries {
		if u.Entries[i].Error != nil {
			continue
		}
		id := u.Entries[i].ToolID
		if groups[id] == nil {
			order = append(order, id)
		}
		groups[id] = append(groups[id], i)
	}
	for len(order) > 0 {
		n, size := 0, 0
		for n < len(order) && (n == 0 || size+len(groups[order[n]]) <= chunk) {
			size += len(groups[order[n]])
			n++
		}
		u.try(ctx, order[:n], groups)
		order = order[n:]
		u.tell()
	}
}

// try publishes some tools. Where they are refused together, those that the refusal
// names are left out and the others tried again; a refusal that names none is narrowed
// down by halves.
func (u *publication) try(ctx context.Context, ids []string, groups map[string][]int) {
	for len(ids) > 0 {
		var at []int
		for _, id := range ids {
			at = append(at, groups[id]...)
		}
		err := u.publish(ctx, at)
		if err == nil {
			return
		}
		e := toolkeep.AsError(err)
		bad := u.blamed(e, at)
		switch {
		case len(bad) > 0:
			var rest []string
			for _, id := range ids {
				if why := bad[id]; why != nil {
					u.refuse(groups[id], why)
				} else {
					rest = append(rest, id)
				}
			}
			ids = rest
		case len(ids) == 1 || !ofTheTool(e) || ctx.Err() != nil:
			for _, id := range ids {
				u.refuse(groups[id], e)
			}
			return
		default:
			half := len(ids) / 2
			u.try(ctx, ids[:half], groups)
			ids = ids[half:]
		}
	}
}

func (u *publication) refuse(at []int, why *toolkeep.Error) {
	for _, i := range at {
		u.Entries[i].Error = why
	}
	u.done += len(at)
}

// ofTheTool tells refusals that another tool might not get from those that all would.
func ofTheTool(e *toolkeep.Error) bool {
	switch e.Code {
	case toolkeep.InvalidManifest, toolkeep.DuplicateTool, toolkeep.PermissionDenied, toolkeep.InvalidParameters, toolkeep.MalformedRequest:
		return true
	}
	return false
}

// blamed are the tools that a refusal names, each with its own share of it. at are the
// indexes of the manifests that were sent.
func (u *publication) blamed(e *toolkeep.Error, at []int) map[string]*toolkeep.Error {
	bad := map[string]*toolkeep.Error{}
	put := func(index int, one *toolkeep.Error) {
		if index >= 0 && index < len(at) {
			if id := u.Entries[at[index]].ToolID; bad[id] == nil {
				bad[id] = one
			}
		}
	}
	if list, ok := e.Details["manifests"].([]catalog.ManifestFaults); ok {
		for _, f := range list {
			put(f.Index, u.notValid(f.Errors))
		}
	}
	if list, ok := e.Details["breaking"].([]catalog.Breaking); ok {
		for _, r := range list {
			one := toolkeep.NewError(e.Code, "%s breaks callers of %s; publish it under a higher major number, or with force", r.ToolID+"@"+r.Version, r.From)
			if most := min(len(r.Differences), toolkeep.MaxFaults-u.faults); most > 0 || u.faults == 0 {
				u.faults += most
				one.With("breaking", append([]catalog.Difference{}, r.Differences[:most]...))
			}
			put(r.Index, one)
		}
	}
	if id, ok := e.Details["tool_id"].(string); ok && len(bad) == 0 && u.coming[id] {
		bad[id] = e
	}
	return bad
}

// notValid is the outcome of a manifest with faults. Once the outcomes have told their share,
// it says where the faults are told.
func (u *publication) notValid(faults []toolkeep.Fault) *toolkeep.Error {
	most := min(len(faults), maxFaults, toolkeep.MaxFaults-u.faults)
	if most <= 0 {
		return toolkeep.NewError(toolkeep.InvalidManifest, "the manifest is not valid; this answer lists the faults of earlier ones only, so publish it again without them")
	}
	u.faults += most
	message := "the manifest is not valid: " + strings.TrimPrefix(faults[0].Pointer+": "+faults[0].Message, ": ")
	return toolkeep.NewError(toolkeep.InvalidManifest, "%s", toolkeep.ClipBytes(message, maxReason)).
		With("errors", toolkeep.ShareFaults(faults[:most], toolkeep.MaxFaults/most))
}

// unknownTools warns of tools that a manifest's relationships and its fallback name and
// that neither the publisher sees nor the batch holds.
func (u *publication) unknownTools(manifest []byte) (out []toolkeep.Warning) {
	var m struct {
		Fallback      string `json:"fallback"`
		Relationships struct {
			Dependencies []string `json:"dependencies"`
			Pairings     []struct {
				ToolID string `json:"tool_id"`
			} `json:"pairings"`
			Alternatives []string `json:"alternatives"`
		} `json:"relationships"`
	}
	if json.Unmarshal(manifest, &m) != nil {
		return nil
	}
	visible := func(t *toolkeep.Tool) bool { return u.m.c.Visible(u.p, t) }
	check := func(field, ref, then string) {
		id, rng, _ := strings.Cut(ref, "@")
		if u.coming[id] {
			return
		}
		if _, _, err := u.m.c.Catalog.Find(u.p, id, rng, visible); err != nil {
			short := clip(ref)
			out = append(out, toolkeep.Warning{Code: toolkeep.AsError(err).Code, Message: field + " names " + short + ", which you cannot see; " + then,
				Details: map[string]any{"tool": short}})
		}
	}
	const shown = "the relationship is shown once you can"
	for _, ref := range m.Relationships.Dependencies {
		check("relationships.dependencies", ref, shown)
	}
	for _, one := range m.Relationships.Pairings {
		check("relationships.pairings", one.ToolID, shown)
	}
	for _, ref := range m.Relationships.Alternatives {
		check("relationships.alternatives", ref, shown)
	}
	if name, ok := strings.CutPrefix(m.Fallback, catalog.CapabilityPrefix); ok {
		if _, n := u.m.c.Catalog.List(u.p, catalog.Filter{Capability: name, Limit: 1}, visible); n == 0 && !u.offers[name] {
			out = append(out, toolkeep.Warning{Code: toolkeep.CapabilityNotFound, Message: "fallback names the capability " + clip(name) + ", which no tool offers that you can see; publish one, or correct the name",
				Details: map[string]any{"capability": clip(name)}})
		}
	} else if m.Fallback != "" {
		check("fallback", m.Fallback, "publish it, or correct the name")
	}
	return out
}

// clip shortens a reference to what a warning shows.
func clip(s string) string { return toolkeep.ClipBytes(s, 200) }

// toolOf reads the tool_id and the capabilities of a manifest, nothing where it has none.
func toolOf(manifest []byte) (id string, capabilities []string) {
	var m struct {
		ToolID       string   `json:"tool_id"`
		Capabilities []string `json:"capabilities"`
	}
	if json.Unmarshal(manifest, &m) != nil {
		return "", nil
	}
	return m.ToolID, m.Capabilities
}
