package node

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// TestParts starts in order, stops what was started in reverse, and once.
func TestParts(t *testing.T) {
	var did []string
	fails := ""
	bad := errors.New("bad")
	named := func(name string) part {
		return part{name, func(context.Context) error {
			if name == fails {
				return bad
			}
			did = append(did, "+"+name)
			return nil
		}, func() { did = append(did, "-"+name) }}
	}
	list := []part{named("store"), named("catalog"), {name: "nothing"}, named("faces")}
	for _, c := range []struct {
		fails string
		want  []string
	}{
		{"", []string{"+store", "+catalog", "+faces", "-faces", "-catalog", "-store"}},
		{"store", nil},
		{"catalog", []string{"+store", "-store"}},
		{"faces", []string{"+store", "+catalog", "-catalog", "-store"}},
	} {
		fails, did = c.fails, nil
		var r running
		if err := r.start(t.Context(), list); (err != nil) != (fails != "") || err != nil && !errors.Is(err, bad) {
			t.Errorf("%s fails: %v", fails, err)
		}
		r.stop()
		r.stop()
		if !slices.Equal(did, c.want) {
			t.Errorf("%s fails: did %q, want %q", fails, did, c.want)
		}
	}
}
