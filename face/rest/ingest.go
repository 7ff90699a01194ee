package rest

import (
	"context"
	"errors"
	"strings"
	"time"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
)

// Indexing tells how far search knows a tool; discover.Index is one.
type Indexing interface {
	// Indexed tells whether search finds a version by its words, and by its meaning.
	Indexed(tenant, id, version string) (searchable, embedded bool)
	Embedding() discover.Embedding
	// Changed gives a channel that is closed when that is next another answer.
	Changed() <-chan struct{}
}

// IndexingStatus is how far search knows a version.
type IndexingStatus struct {
	Searchable bool   `json:"searchable" doc:"search finds it by its words; false for a version that is not the newest active one, and after a dry run"`
	Embedding  string `json:"embedding" enum:"done,pending,none" doc:"whether search compares its meaning: pending while its vector is made in the background, none without an embedding model and where it is not searchable"`
}

// Waits for vectors, where await_embedding asks for it.
const (
	awaitPlain  = 30 * time.Second
	awaitStream = 10 * time.Minute
)

// indexing is how far search knows what was published. Without Indexing it is taken for
// searchable, as every publication is at once.
func (a *API) indexing(tenant string, v catalog.Published, dryRun bool) IndexingStatus {
	switch {
	case dryRun:
		return IndexingStatus{Embedding: "none"}
	case a.c.Indexing == nil:
		return IndexingStatus{Searchable: true, Embedding: "none"}
	}
	searchable, embedded := a.c.Indexing.Indexed(tenant, v.ToolID, v.Version)
	s := IndexingStatus{Searchable: searchable, Embedding: "none"}
	switch {
	case embedded:
		s.Embedding = "done"
	case searchable && a.c.Indexing.Embedding().Model != "":
		s.Embedding = "pending"
	}
	return s
}

// IngestProgress is how far a batch is.
type IngestProgress struct {
	Stage string `json:"stage" enum:"publishing,embedding"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
}

// settle finishes a publication: it has tools indexed anew where that was asked for, waits
// for their vectors where that was, and says how far search knows them.
func (a *API) settle(ctx context.Context, p *toolkeep.Principal, list []catalog.Published, o PublishOptions, to *progress) []IndexingStatus {
	tenant := p.Tenant
	if o.Shared {
		tenant = ""
	}
	if o.ForceReindex && !o.DryRun && a.c.SearchAdmin != nil && len(list) > 0 {
		ids := make([]string, len(list))
		for i, v := range list {
			ids[i] = v.ToolID
		}
		if _, err := a.c.SearchAdmin.Reindex(ctx, p, ids, true); err != nil {
			// What is published is published; the words are searchable already.
			a.log.WarnContext(ctx, "tools were published and could not be indexed anew", "error", err)
		}
	}
	out := make([]IndexingStatus, len(list))
	look := func() (pending int) {
		for i, v := range list {
			if out[i].Embedding == "" || out[i].Embedding == "pending" {
				out[i] = a.indexing(tenant, v, o.DryRun)
			}
			if out[i].Embedding == "pending" {
				pending++
			}
		}
		return pending
	}
	if !o.AwaitEmbedding || o.DryRun || a.c.Indexing == nil {
		look()
		return out
	}
	most := awaitPlain
	if to != nil {
		most = awaitStream
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		changed := a.c.Indexing.Changed()
		pending := look()
		to.nowAndThen("progress", IngestProgress{"embedding", len(list) - pending, len(list)})
		if pending == 0 || a.c.Indexing.Embedding().Err != nil {
			return out
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return out
		case <-a.closing:
			return out
		}
	}
}

// unknownRelations warns of tools that a manifest's relationships name and that do not exist
// for the publisher: hidden ones are told like those that there never were. coming are the
// tools that are published with it.
func (a *API) unknownRelations(p *toolkeep.Principal, manifest []byte, coming map[string]bool) []warning {
	out := []warning{}
	var m struct {
		Relationships struct {
			Dependencies []string `json:"dependencies"`
			Pairings     []struct {
				ToolID string `json:"tool_id"`
			} `json:"pairings"`
			Alternatives []string `json:"alternatives"`
		} `json:"relationships"`
	}
	if strict.Unmarshal(manifest, &m) != nil {
		return out
	}
	check := func(kind, ref string) {
		id, rng, _ := strings.Cut(ref, "@")
		if coming[id] {
			return
		}
		if _, _, err := a.c.Catalog.Describe(p, id, rng, a.visible(p)); err != nil {
			e := toolkeep.AsError(err)
			out = append(out, warning{Code: string(e.Code), Message: "relationships." + kind + " names " + clip(ref, 200) + ", which you cannot see now; it is shown once it is there",
				Details: map[string]any{"tool": clip(ref, 200)}})
		}
	}
	for _, ref := range m.Relationships.Dependencies {
		check("dependencies", ref)
	}
	for _, one := range m.Relationships.Pairings {
		check("pairings", one.ToolID)
	}
	for _, ref := range m.Relationships.Alternatives {
		check("alternatives", ref)
	}
	return out
}

// toolOf is the tool_id of a manifest, "" for one that has none.
func toolOf(manifest []byte) string {
	var m struct {
		ToolID string `json:"tool_id"`
	}
	if strict.Unmarshal(manifest, &m) != nil {
		return ""
	}
	return m.ToolID
}

// BatchOutcome is what became of one manifest of a batch.
type BatchOutcome struct {
	Index   int          `json:"index" doc:"of the manifest in the request, from 0"`
	ToolID  string       `json:"tool_id,omitempty"`
	Version string       `json:"version,omitempty"`
	Status  string       `json:"status" enum:"created,unchanged,refused,checked" doc:"checked: a dry run would publish it"`
	Error   *InvokeError `json:"error,omitempty" doc:"why it was refused"`
}

// BatchResult is what became of a batch.
type BatchResult struct {
	Published []PublishedVersion `json:"published" doc:"in the order of the request"`
	Outcomes  []BatchOutcome     `json:"outcomes" doc:"of every manifest, in the order of the request"`
	Created   int                `json:"created"`
	Unchanged int                `json:"unchanged" doc:"the same content was there before"`
	Refused   int                `json:"refused" doc:"0 unless partial"`
}

type batchInput struct {
	progressInput
	Body struct {
		Tools   []Registration `json:"tools" minItems:"1" maxItems:"20000"`
		Partial bool           `json:"partial,omitempty" doc:"publish each tool by itself: those that are refused do not keep the others back. All versions of one tool stand or fall together. Default: all or none"`
		PublishOptions
	} `nameHint:"BatchRegisterRequest"`
}

type batchOutput struct {
	Body BatchResult `nameHint:"BatchRegisterResponse"`
}

func (a *API) batchRegister(ctx context.Context, p *toolkeep.Principal, in *batchInput) (*batchOutput, error) {
	b := &batch{a: a, p: p, o: in.Body.PublishOptions, to: in.progress, total: len(in.Body.Tools), coming: map[string]bool{},
		results: make([]*catalog.Published, len(in.Body.Tools)), errors: make([]*toolkeep.Error, len(in.Body.Tools))}
	for i := range in.Body.Tools {
		raw, err := in.Body.Tools[i].manifest("")
		if err != nil {
			if !in.Body.Partial {
				return nil, err
			}
			b.errors[i] = toolkeep.AsError(err)
			b.done++
		}
		id := toolOf(raw)
		b.manifests, b.ids = append(b.manifests, raw), append(b.ids, id)
		b.coming[id] = true
	}
	b.to.nowAndThen("progress", IngestProgress{"publishing", b.done, b.total})
	if in.Body.Partial {
		b.partly(ctx)
	} else if err := b.whole(ctx); err != nil {
		return nil, err
	}
	return b.answer(ctx), nil
}

// batch is one batch-register under way.
type batch struct {
	a         *API
	p         *toolkeep.Principal
	o         PublishOptions
	to        *progress
	manifests [][]byte
	ids       []string // of manifests
	coming    map[string]bool
	results   []*catalog.Published // by manifest, nil where it was refused
	errors    []*toolkeep.Error    // by manifest
	done      int
	total     int
}

func (b *batch) whole(ctx context.Context) error {
	list, err := b.a.c.Catalog.Publish(ctx, b.p, b.manifests, b.o.options())
	if err != nil {
		return err
	}
	for i := range list {
		b.results[i] = &list[i]
	}
	return nil
}

// maxFaults is how many faults of one manifest an outcome tells.
const maxFaults = 20

// chunk is how many manifests of a partial batch go into one transaction.
const chunk = 200

// partly publishes chunk by chunk. The versions of one tool are never parted.
func (b *batch) partly(ctx context.Context) {
	var order []string
	groups := map[string][]int{}
	for i, id := range b.ids {
		if b.errors[i] != nil {
			continue
		}
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
		b.try(ctx, order[:n], groups)
		order = order[n:]
		b.to.nowAndThen("progress", IngestProgress{"publishing", b.done, b.total})
	}
}

// try publishes some tools. Where they are refused together, those that the refusal names
// are left out and the others tried again; a refusal that names none is narrowed down by
// halves.
func (b *batch) try(ctx context.Context, ids []string, groups map[string][]int) {
	for len(ids) > 0 {
		var at []int
		var manifests [][]byte
		for _, id := range ids {
			for _, i := range groups[id] {
				at = append(at, i)
				manifests = append(manifests, b.manifests[i])
			}
		}
		list, err := b.a.c.Catalog.Publish(ctx, b.p, manifests, b.o.options())
		if err == nil {
			for k := range list {
				b.results[at[k]] = &list[k]
			}
			b.done += len(list)
			return
		}
		e := toolkeep.AsError(err)
		bad := b.blamed(e, at)
		switch {
		case len(bad) > 0:
			var rest []string
			for _, id := range ids {
				if why := bad[id]; why != nil {
					b.refuse(groups[id], why)
				} else {
					rest = append(rest, id)
				}
			}
			ids = rest
		case len(ids) == 1 || !ofTheTool(e) || ctx.Err() != nil:
			for _, id := range ids {
				b.refuse(groups[id], e)
			}
			return
		default:
			half := len(ids) / 2
			b.try(ctx, ids[:half], groups)
			ids = ids[half:]
		}
	}
}

func (b *batch) refuse(at []int, why *toolkeep.Error) {
	for _, i := range at {
		b.errors[i] = why
	}
	b.done += len(at)
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
func (b *batch) blamed(e *toolkeep.Error, at []int) map[string]*toolkeep.Error {
	bad := map[string]*toolkeep.Error{}
	put := func(index int, one *toolkeep.Error) {
		if index >= 0 && index < len(at) {
			if id := b.ids[at[index]]; bad[id] == nil {
				bad[id] = one
			}
		}
	}
	if list, ok := e.Details["manifests"].([]catalog.ManifestFaults); ok {
		for _, m := range list {
			message := "the manifest is not valid"
			if len(m.Errors) > 0 {
				message += ": " + strings.TrimPrefix(m.Errors[0].Pointer+": "+m.Errors[0].Message, ": ")
			}
			put(m.Index, toolkeep.FaultsError(toolkeep.InvalidManifest, message, m.Errors[:min(len(m.Errors), maxFaults)]))
		}
	}
	if list, ok := e.Details["breaking"].([]catalog.Breaking); ok {
		for _, r := range list {
			put(r.Index, toolkeep.NewError(e.Code, "%s breaks callers of %s; publish it under a higher major number, or with force", r.ToolID+"@"+r.Version, r.From).
				With("breaking", differences(r.Differences)))
		}
	}
	if id, ok := e.Details["tool_id"].(string); ok && len(bad) == 0 && b.coming[id] {
		bad[id] = e
	}
	return bad
}

// answer tells every manifest's outcome.
func (b *batch) answer(ctx context.Context) *batchOutput {
	out := &batchOutput{Body: BatchResult{Published: []PublishedVersion{}, Outcomes: make([]BatchOutcome, b.total)}}
	r := &out.Body
	var list []catalog.Published
	for _, one := range b.results {
		if one != nil {
			list = append(list, *one)
		}
	}
	status := b.a.settle(ctx, b.p, list, b.o, b.to)
	for i, one := range b.results {
		o := &r.Outcomes[i]
		*o = BatchOutcome{Index: i, ToolID: clip(b.ids[i], 200)}
		if one == nil {
			o.Status, o.Error = "refused", invokeError(b.errors[i])
			r.Refused++
			continue
		}
		o.ToolID, o.Version = one.ToolID, one.Version
		switch {
		case !one.Created:
			o.Status = "unchanged"
			r.Unchanged++
		case b.o.DryRun:
			o.Status = "checked"
		default:
			o.Status = "created"
			r.Created++
		}
		v := published(*one, status[len(r.Published)])
		v.Warnings = b.a.unknownRelations(b.p, b.manifests[i], b.coming)
		r.Published = append(r.Published, v)
	}
	return out
}

// invokeError is an error as answers hold it.
func invokeError(e *toolkeep.Error) *InvokeError {
	if e == nil {
		e = toolkeep.AsError(errors.New("a manifest of a batch was neither published nor refused"))
	}
	var out InvokeError
	if err := strict.Unmarshal(appendError(nil, e), &out); err != nil {
		return &InvokeError{Code: e.Code.Info().BC2, ErrorCode: string(e.Code), Message: e.Message}
	}
	return &out
}
