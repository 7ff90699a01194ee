package invoke

import (
	"bytes"
	"context"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/inspect"
)

// inspect checks the output and stores what exceeds the size limit in the blob store.
func (p *Pipeline) inspect(ctx context.Context, w *prepared, out *toolkeep.Output, res *toolkeep.Result) error {
	// The type is upstream text too, and parsing changes its case.
	own := *out
	own.ContentType = w.cleaner.Clean(out.ContentType)
	got, err := p.Inspector.Inspect(p.bounded(w), &own, w.cleaner)
	if err != nil {
		return err
	}
	res.Output, res.Truncated = got.Output, got.Truncated
	res.Warnings = append(res.Warnings, got.Warnings...)
	if !got.Truncated && !got.Attached {
		p.unkeep(ctx, w, out)
		return nil
	}
	b, ok := p.stored(ctx, w, out, got)
	if !ok {
		message := "the result was cut and the whole of it could not be stored"
		if got.Attached {
			message = "the result is binary and its bytes could not be stored"
		}
		res.Warnings = append(res.Warnings, toolkeep.Warning{Code: toolkeep.ResultTooLarge, Message: message})
		return nil
	}
	kind := "blob"
	switch {
	case got.Attached && strings.HasPrefix(got.ContentType, "image/"):
		kind = "image"
	case got.Table:
		kind = "table"
	}
	res.Attachments = append(res.Attachments, toolkeep.Attachment{Kind: kind, URL: "/api/v1/blobs/" + b.ID, ContentType: b.ContentType, Bytes: b.Bytes, SHA256: b.SHA256})
	return nil
}

// bounded is the tool of the call, with an output of at most KeptBytes where the answer is kept.
func (p *Pipeline) bounded(w *prepared) *toolkeep.Tool {
	if !p.cuts(w.tool.Manifest, w.kept) {
		return w.tool
	}
	t, m, r := *w.tool, *w.tool.Manifest, toolkeep.ResultSpec{}
	if m.Result != nil {
		r = *m.Result
	}
	r.MaxOutputBytes = p.KeptBytes
	t.Manifest, m.Result = &m, &r
	return &t
}

// cuts reports whether an answer can be cut because it is kept.
func (p *Pipeline) cuts(m *toolkeep.Manifest, kept bool) bool {
	return kept && p.KeptBytes > 0 && m.MaxOutputBytes() > p.KeptBytes
}

// unkeep removes a text from the blob store that went there while it arrived and is whole in the result: without its
// secrets it is short.
func (p *Pipeline) unkeep(ctx context.Context, w *prepared, out *toolkeep.Output) {
	if out.Kept == nil || out.Kept.Blob.ID == "" {
		return
	}
	if err := p.Blobs.Remove(context.WithoutCancel(ctx), out.Kept.Blob.ID); err != nil {
		p.Log.Warn("a stored text that its result holds whole could not be removed; it goes with other old blobs", "invocation_id", w.id, "error", err)
	}
}

// stored puts the whole result into the blob store, unless it went there while it arrived. It reports whether it is there.
func (p *Pipeline) stored(ctx context.Context, w *prepared, out *toolkeep.Output, got *inspect.Inspected) (toolkeep.Blob, bool) {
	if out.Kept != nil {
		return out.Kept.Blob, out.Kept.Blob.ID != ""
	}
	whole := toolkeep.Blob{Tenant: w.principal.Tenant, Subject: w.principal.Subject, ContentType: got.ContentType}
	if w.tool.Manifest.PublicResult() && !w.personal() && !w.forCaller {
		whole.Subject = "" // everyone who gets the cached result may fetch the whole
	}
	b, err := p.Blobs.Put(ctx, whole, bytes.NewReader(got.Whole))
	if err != nil {
		p.Log.Error("a cut or binary result could not be stored whole", "invocation_id", w.id, "error", err)
	}
	return b, err == nil
}
