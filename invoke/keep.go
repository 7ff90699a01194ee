package invoke

import (
	"bytes"
	"context"
	"io"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/inspect"
)

// keep implements Execution.Keep: the body goes through the redactor into the blob store.
func (p *Pipeline) keep(ctx context.Context, w *prepared, grow func(int64) error, o *toolkeep.Output, body io.Reader) (bool, error) {
	how, ok := p.Inspector.Keep(p.bounded(w), o, w.cleaner)
	if !ok {
		return false, nil
	}
	in := &source{r: body}
	head, err := readHead(in, how.From, grow)
	if err != nil {
		return true, err
	}
	if how.Text && inspect.IsUTF16(head) {
		for err == nil && in.err == nil {
			head, err = readMore(head, in, grow)
		}
		o.Body = head
		return true, err
	}
	if in.err == io.EOF {
		o.Body = head
		return true, nil
	}
	if !how.Text {
		var told []toolkeep.Warning
		how.ContentType, told = inspect.Sniff(how.ContentType, head)
		o.ContentType, o.Warnings = how.ContentType, append(o.Warnings, told...)
	}
	var repaired bool
	whole := io.MultiReader(bytes.NewReader(head), in)
	if how.Text {
		whole = inspect.GoodText(whole, &repaired)
	}
	kept := &toolkeep.Kept{}
	start := &beginning{r: w.cleaner.Reader(whole)}
	if how.Text {
		start.most = int(how.From) + utf8.UTFMax // so that it is cut, and between characters
	}
	kept.Blob, err = p.Blobs.Put(ctx, toolkeep.Blob{Tenant: w.principal.Tenant, Subject: w.principal.Subject, ContentType: how.ContentType}, start)
	if in.err != nil && in.err != io.EOF {
		return true, in.err
	}
	if err != nil && ctx.Err() != nil {
		return true, ctx.Err() // the store stopped because the attempt ended
	}
	if err != nil {
		p.Log.Error("a result could not be stored as it arrived", "invocation_id", w.id, "error", err)
		kept.Blob = toolkeep.Blob{}
		// The rest is counted, and its end seen: the call succeeds without the whole.
		if _, err := io.Copy(io.Discard, start); err != nil {
			return true, err
		}
		kept.Blob.Bytes = start.n
	}
	kept.Head, o.Kept = string(start.text), kept
	if repaired {
		o.Warnings = append(o.Warnings, canon.Repairs{Text: true}.Warnings()...)
	}
	return true, nil
}

// source remembers how a body ended.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(b)
	s.err = err
	return n, err
}

// readHead reads until there are more than n bytes or the source ends.
func readHead(s *source, n int64, grow func(int64) error) (head []byte, err error) {
	for int64(len(head)) <= n && s.err == nil && err == nil {
		head, err = readMore(head, s, grow)
	}
	return head, err
}

// readMore appends a piece of the source to b.
func readMore(b []byte, s *source, grow func(int64) error) ([]byte, error) {
	if len(b) == cap(b) {
		b = append(b, make([]byte, max(len(b), 4<<10))...)[:len(b)]
	}
	n, err := s.Read(b[len(b):cap(b)])
	b = b[:len(b)+n]
	if n > 0 {
		if err := grow(int64(n)); err != nil {
			return nil, err
		}
	}
	if err == io.EOF {
		err = nil
	}
	return b, err
}

// beginning counts what is read and remembers the first bytes.
type beginning struct {
	r    io.Reader
	most int
	text []byte
	n    int64
}

func (s *beginning) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.n += int64(n)
	s.text = append(s.text, b[:min(n, s.most-len(s.text))]...)
	return n, err
}
