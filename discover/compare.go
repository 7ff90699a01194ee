package discover

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
)

// vectors returns the vectors of query texts, with a cache since queries repeat.
func (m *meaning) vectors(ctx context.Context, by *space, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	var missing []string
	keys := make([][sha256.Size]byte, len(texts))
	for i, text := range texts {
		keys[i] = sha256.Sum256([]byte(text))
	}
	by.mu.Lock()
	for i, text := range texts {
		if out[i] = by.queries[keys[i]]; out[i] == nil {
			missing = append(missing, text)
		}
	}
	by.mu.Unlock()
	if len(missing) == 0 {
		return out, nil
	}
	if err := m.resting(); err != nil {
		return nil, err
	}
	began := time.Now()
	got, err := embedNow(ctx, by.e, missing)
	if err == nil {
		err = CheckVectors(by.e.Model(), by.e.Dimensions(), len(missing), got)
	}
	if took := time.Since(began); err == nil || !m.refuses(ctx, by, err) {
		m.asked(ctx, took, err)
	}
	if err != nil {
		return nil, err
	}
	by.mu.Lock()
	defer by.mu.Unlock()
	if len(by.queries) >= maxQueries {
		clear(by.queries)
	}
	for i := range out {
		if out[i] == nil {
			out[i], by.queries[keys[i]] = got[0], got[0]
			got = got[1:]
		}
	}
	return out, nil
}

// Prompt is an optional ability of an Embedder: EmbedNow is Embed for texts that a caller waits for, which texts
// that are being embedded do not hold up.
type Prompt interface {
	EmbedNow(ctx context.Context, texts []string) ([][]float32, error)
}

func embedNow(ctx context.Context, e Embedder, texts []string) ([][]float32, error) {
	if p, ok := e.(Prompt); ok {
		return p.EmbedNow(ctx, texts)
	}
	return e.Embed(ctx, texts)
}

// embedding returns the vectors of texts.
type embedding func(by *space, texts []string) ([][]float32, error)

// compare returns, for each text and each tool of r, the cosine similarity, 0 for a missing vector
// or a negative cosine. moved moves the texts, unless it is nil or of other vectors. If that is impossible it returns nil and the reason.
func (x *Index) compare(ctx context.Context, r *ranker, texts []string, moved *questionMap, vectors embedding) ([][]float32, string) {
	m := x.meaning
	if m == nil {
		return nil, "no embedding model is installed, so only words are compared; `toolkeep models install` brings one"
	}
	p := r.p
	a := p.alike
	if a == nil || a.by == nil {
		return nil, m.degradedReason(r)
	}
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	if vectors == nil {
		vectors = func(by *space, texts []string) ([][]float32, error) { return m.vectors(ctx, by, texts) }
	}
	asked, err := vectors(a.by, texts)
	if err != nil {
		return nil, "the embedding model does not answer, so only words are compared" + publicReason(err)
	}
	if moved != nil && moved.by == a.by {
		for i, q := range asked {
			asked[i] = moved.at(q)
		}
	}
	n := len(p.docs)
	numbers := make([]float32, n*len(asked))
	out := make([][]float32, len(asked))
	for i := range out {
		out[i] = numbers[i*n : (i+1)*n : (i+1)*n]
	}
	if err := a.of.Alike(ctx, asked, out); err != nil {
		if errors.Is(err, errLost) {
			x.lost()
		}
		return nil, "meanings cannot be compared, so only words are" + publicReason(err)
	}
	return out, ""
}

// publicReason is what any caller may know about a failure of the embedder or the backend. Their
// own messages may contain addresses and keys; the operator finds them in the log and in health.
func publicReason(err error) string {
	e := toolkeep.AsError(err)
	switch status, ok := e.Details["status"]; {
	case ok:
		return fmt.Sprintf(" (HTTP %v)", status)
	case e.Code == toolkeep.IndexUnavailable:
		return " (the vectors cannot be reached)"
	case errors.Is(err, context.DeadlineExceeded):
		return " (it took too long)"
	}
	return ""
}

// Thousands formats 10000 as 10,000.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// resting returns why queries currently skip the embedder, after it took too long for one; nil if
// they do not.
func (m *meaning) resting() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.rest) {
		return m.mute
	}
	return nil
}

// refuses reports whether a working embedder fails only for this text. A query must not make it
// seem broken.
func (m *meaning) refuses(ctx context.Context, by *space, err error) bool {
	if m.isMute() || ctx.Err() != nil {
		return false
	}
	_, probe := embedNow(ctx, by.e, []string{probeText})
	if probe == nil {
		m.log.Debug("a query cannot be compared by meaning; only its words count", "error", err)
	}
	return probe == nil
}

// asked records whether a query could be compared. The first failure is logged: once all tools are
// embedded nothing else tells the operator. After a timeout, queries of the next second skip the
// embedder, as every search would take as long.
func (m *meaning) asked(ctx context.Context, took time.Duration, err error) {
	if errors.Is(context.Cause(ctx), context.Canceled) { // the caller left
		return
	}
	m.mu.Lock()
	was := m.mute
	m.mute = err
	if err != nil && took >= m.limit {
		m.rest = time.Now().Add(restFor)
	}
	m.mu.Unlock()
	if err != nil && was == nil {
		m.log.Warn("queries cannot be compared by meaning; until they can, only words count", "error", err)
		select {
		case m.muted <- struct{}{}:
		default:
		}
	} else if err == nil && was != nil {
		m.log.Info("queries are compared by meaning again")
	}
}
