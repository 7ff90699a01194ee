package invoke_test

import (
	"context"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// slowAsker is a caller whose answer comes when the test says so.
type slowAsker struct{ asked, answer chan struct{} }

func (slowAsker) Progress(toolkeep.Progress) {}

func (a slowAsker) Ask(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	defer toolkeep.PauseTimeout(ctx)()
	a.asked <- struct{}{}
	select {
	case <-a.answer:
		return []byte(`{}`), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestParkedCallsAreNotConcurrent: while a call waits for its caller's answer, it holds no
// slot of its agent; then it has it again until it ends.
func TestParkedCallsAreNotConcurrent(t *testing.T) {
	for _, child := range []bool{false, true} {
		h := newHarness(t)
		h.tool("parent", writes)
		h.tool("asks")
		during := make(chan int64, 1)
		h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
			if x.Tool.ID == "std.parent" {
				_, err := x.Child.Invoke(ctx, alice, &toolkeep.Call{Tool: "std.asks", Caller: x.Caller})
				return &toolkeep.Output{HasValue: true}, err
			}
			_, err := x.Caller.(toolkeep.Asker).Ask(ctx, "elicitation/create", nil)
			during <- h.limits.held.Load()
			return &toolkeep.Output{HasValue: true}, err
		}
		name, slots := "std.asks", int64(1)
		if child {
			name, slots = "std.parent", 2 // the fake's child takes one too
		}
		c := slowAsker{make(chan struct{}), make(chan struct{})}
		ended := make(chan error)
		go func() {
			_, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: name, Caller: c})
			ended <- err
		}()
		<-c.asked
		if n := h.limits.held.Load(); n != slots-1 {
			t.Errorf("child %t: %d slots are held while the caller is asked, want %d", child, n, slots-1)
		}
		c.answer <- struct{}{}
		if n := <-during; n != slots {
			t.Errorf("child %t: %d slots are held after the answer, want %d", child, n, slots)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := h.limits.held.Load(); n != 0 {
			t.Errorf("child %t: %d slots are held at the end", child, n)
		}
	}
}
