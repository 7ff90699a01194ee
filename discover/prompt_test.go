package discover

import (
	"context"
	"slices"
	"testing"
	"time"
)

// prompt embeds questions beside texts that it is held up with.
type prompt struct {
	topics
	begun chan struct{} // an Embed waits
}

func (e *prompt) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	e.mu.Lock()
	block := e.block
	e.mu.Unlock()
	if block != nil {
		e.begun <- struct{}{}
	}
	return e.topics.Embed(ctx, texts)
}

func (e *prompt) EmbedNow(ctx context.Context, texts []string) ([][]float32, error) {
	return (&topics{}).Embed(ctx, texts)
}

// TestSearchDoesNotWaitForTools has a question compared by meaning while tools are being embedded.
func TestSearchDoesNotWaitForTools(t *testing.T) {
	e := &prompt{begun: make(chan struct{}, 100)}
	x := meaningIndex(t, e, threeTools...)
	embedded(t, x, 3)
	release := make(chan struct{})
	e.set(nil, release)
	defer close(release)
	x.Update(slices.Values(append(slices.Clone(threeTools), tool("sky.soon", "1.0.0", "Will there be rain"))))
	select {
	case <-e.begun: // the tool is being embedded, until release
	case <-time.After(time.Minute):
		t.Fatal("the new tool is not embedded")
	}
	got, r := x.Find(t.Context(), Query{Text: "do I need an umbrella"}, nil)
	if !slices.Equal(found(got), []string{"sky.now@1.0.0"}) || !r.Partial || r.Strategy != Hybrid {
		t.Errorf("%v, %+v", found(got), r)
	}
}
