package toolkeep

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// oneBreak is a feed of the changes 1 to 5 that breaks once, after 3, and then waits for more.
type oneBreak struct {
	headAt
	broke bool
}

func (f *oneBreak) Watch(ctx context.Context, after int64) iter.Seq2[Committed, error] {
	return func(yield func(Committed, error) bool) {
		for seq := after + 1; seq <= 5; seq++ {
			if seq == 4 && !f.broke {
				f.broke = true
				yield(Committed{}, errors.New("the store is away"))
				return
			}
			if !yield(Committed{Seq: seq}, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

// follower starts at the change 1.
type follower struct{ got []int64 }

func (f *follower) Start(context.Context) (int64, error) { return 1, nil }
func (f *follower) Follow(c Committed)                   { f.got = append(f.got, c.Seq) }

// TestFollowing: a part gets each change after its start once, also over a break, which is logged,
// and nothing runs after Stop.
func TestFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := NewFollowing(&oneBreak{}, func(component string) *slog.Logger {
			return slog.New(slog.NewTextHandler(&log, nil)).With("component", component)
		})
		var p follower
		if err := f.Start(t.Context(), "context", "contexts", &p); err != nil {
			t.Fatal(err)
		}
		ended := false
		f.Go(func(ctx context.Context) {
			<-ctx.Done()
			ended = true
		})
		Sleep(t.Context(), 2*followPause)
		f.Stop()
		if !slices.Equal(p.got, []int64{2, 3, 4, 5}) || !ended {
			t.Errorf("got %v, ended %t", p.got, ended)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "component=context") || !strings.Contains(text, "the feed of contexts broke") {
			t.Errorf("the log says %q", text)
		}
	})
}
