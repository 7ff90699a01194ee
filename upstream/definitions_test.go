//go:build linux

package upstream

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestCompareKeepsNothing: OnDefinitions is not called, and a later call in Compare's
// session is verified against a new read.
func TestCompareKeepsNothing(t *testing.T) {
	c := testConfig(t)
	var mu sync.Mutex
	var told []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what)
	}
	c.OnDefinitions = func(string, string, Definitions) { note("definitions") }
	c.VerifyPinned = func(_, _, _, tool string) error {
		note("verify " + tool)
		return errors.New("not accepted")
	}
	s := start(t, c, stdioSpec(t, ""))
	for range 2 {
		d, err := s.Compare(t.Context(), alice(), "s")
		if err != nil || len(d.Tools) == 0 || !d.Settled {
			t.Fatalf("%d tools, settled %t: %v", len(d.Tools), d.Settled, err)
		}
	}
	if told != nil {
		t.Fatal(told)
	}
	if st := s.Status(alice()); st[0].Sessions != 1 || st[0].Tools != 0 {
		t.Errorf("%+v", st[0])
	}
	if _, err := s.Do(t.Context(), toolCall(alice(), "echo", "")); err == nil || err.Error() != "not accepted" {
		t.Errorf("the call was not verified: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(told, []string{"definitions", "verify echo"}) {
		t.Error(told)
	}
	if _, err := s.Compare(t.Context(), alice(), "none"); !toolkeep.IsCode(err, toolkeep.MCPUnavailable) {
		t.Error(err)
	}
}

// TestListThatFailsKeepsTheTools: an error in the list of resources does not refuse the tools.
func TestListThatFailsKeepsTheTools(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, "no-resources"))
	d, err := s.Refresh(t.Context(), alice(), "s")
	if err != nil || len(d.Tools) == 0 || len(d.Resources) != 0 || d.Stale != nil {
		t.Errorf("%d tools, %v, stale %v", len(d.Tools), err, d.Stale)
	}
	if text := logs(t, s, alice()); !strings.Contains(text, "resources/list") {
		t.Errorf("the log does not tell it: %s", text)
	}
	if got := call(t, s, toolCall(alice(), "echo", "hi")); got != "hi" {
		t.Errorf("%q", got)
	}
}
