package rest

import (
	"context"
	"time"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/imports"
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

// settle finishes a publication: it has tools indexed again where that was asked for, waits
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
			a.log.WarnContext(ctx, "tools were published and could not be indexed again", "error", err)
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

func (*batchInput) needs(_ *API, p *toolkeep.Principal, body tree) error {
	return publishNeeds(p, body)
}

type batchOutput struct {
	Body BatchResult `nameHint:"BatchRegisterResponse"`
}

func (a *API) batchRegister(ctx context.Context, p *toolkeep.Principal, in *batchInput) (*batchOutput, error) {
	total := len(in.Body.Tools)
	b := &imports.Batch{Entries: make([]imports.Entry, total), Partial: in.Body.Partial, PublishOptions: in.Body.options(),
		Progress: func(done int) { in.progress.nowAndThen("progress", IngestProgress{"publishing", done, total}) }}
	for i := range in.Body.Tools {
		raw, err := in.Body.Tools[i].manifest("")
		if err != nil {
			if !in.Body.Partial {
				return nil, err
			}
			b.Entries[i].Error = toolkeep.AsError(err)
		}
		b.Entries[i].Manifest = raw
	}
	if err := a.c.Imports.Publish(ctx, p, b); err != nil {
		return nil, err
	}
	return a.batchAnswer(ctx, p, b.Entries, in), nil
}

// batchAnswer tells every manifest's outcome.
func (a *API) batchAnswer(ctx context.Context, p *toolkeep.Principal, entries []imports.Entry, in *batchInput) *batchOutput {
	out := &batchOutput{Body: BatchResult{Published: []PublishedVersion{}, Outcomes: make([]BatchOutcome, len(entries))}}
	r := &out.Body
	var list []catalog.Published
	for _, e := range entries {
		if e.Published != nil {
			list = append(list, *e.Published)
		}
	}
	status := a.settle(ctx, p, list, in.Body.PublishOptions, in.progress)
	for i, e := range entries {
		o := &r.Outcomes[i]
		*o = BatchOutcome{Index: i, ToolID: toolkeep.ClipBytes(e.ToolID, 200)}
		if e.Published == nil {
			o.Status, o.Error = "refused", invokeError(e.Error)
			r.Refused++
			continue
		}
		o.ToolID, o.Version = e.Published.ToolID, e.Published.Version
		switch {
		case !e.Published.Created:
			o.Status = "unchanged"
			r.Unchanged++
		case in.Body.DryRun:
			o.Status = "checked"
		default:
			o.Status = "created"
			r.Created++
		}
		v := published(*e.Published, status[len(r.Published)])
		v.Warnings = e.Warnings
		r.Published = append(r.Published, v)
	}
	return out
}

// invokeError is an error as answers hold it.
func invokeError(e *toolkeep.Error) *InvokeError {
	var out InvokeError
	if err := strict.Unmarshal(appendError(nil, e), &out); err != nil {
		return &InvokeError{Code: e.Code.Info().BC2, ErrorCode: string(e.Code), Message: e.Message}
	}
	return &out
}
