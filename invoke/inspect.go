package invoke

import (
	"bytes"
	"context"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// inspect checks the output and puts what is over the cut into the blob store.
func (p *Pipeline) inspect(ctx context.Context, j *job, out *toolkeep.Output, res *toolkeep.Result) error {
	// The type is the upstream's text too, and reading it changes its case.
	own := *out
	own.ContentType = j.clean.Clean(out.ContentType)
	got, err := p.Inspector.Inspect(j.tool, &own, j.clean)
	if err != nil {
		return err
	}
	res.Output, res.Truncated = got.Output, got.Truncated
	res.Warnings = append(res.Warnings, got.Warnings...)
	if !got.Truncated && !got.Attached {
		return nil
	}
	whole := toolkeep.Blob{Tenant: j.principal.Tenant, Subject: j.principal.Subject, ContentType: got.ContentType}
	if j.tool.Manifest.PublicResult() && !j.private() {
		whole.Subject = "" // whoever gets the cached result may fetch the whole of it
	}
	b, err := p.Blobs.Put(ctx, whole, bytes.NewReader(got.Whole))
	if err != nil {
		p.Log.Error("a cut or binary result could not be kept whole", "invocation_id", j.id, "error", err)
		message := "the result was cut and the whole of it could not be kept"
		if !got.Truncated {
			message = "the result is binary and its bytes could not be kept"
		}
		res.Warnings = append(res.Warnings, toolkeep.Warning{Code: toolkeep.ResultTooLarge, Message: message})
		return nil
	}
	kind := "blob"
	if got.Attached && strings.HasPrefix(got.ContentType, "image/") {
		kind = "image"
	}
	res.Attachments = append(res.Attachments, toolkeep.Attachment{Kind: kind, URL: "/api/v1/blobs/" + b.ID, ContentType: b.ContentType, Bytes: b.Bytes})
	return nil
}
