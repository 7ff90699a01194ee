package toolkeep

import (
	"testing"
	"time"
)

func TestHoldCovers(t *testing.T) {
	at := func(h int) time.Time { return time.Date(2026, 3, 1, h, 0, 0, 0, time.UTC) }
	h := LegalHold{From: at(4), Until: at(8)}
	for _, c := range []struct {
		from, until int
		want        bool
	}{{0, 4, false}, {0, 5, true}, {5, 6, true}, {7, 9, true}, {8, 9, false}, {0, 20, true}} {
		if got := h.Covers(at(c.from), at(c.until)); got != c.want {
			t.Errorf("from %d to %d: %t", c.from, c.until, got)
		}
	}
	open := LegalHold{From: at(4)}
	if open.Covers(at(0), at(4)) || !open.Covers(at(20), at(21)) {
		t.Error("a hold without end")
	}
	if h := ReadLegalHold(Document{Tenant: "t", ID: "x", Body: []byte("{")}); h.Tenant != "t" || !h.Covers(time.Unix(0, 0), at(0)) {
		t.Errorf("a hold that cannot be read covers not all: %+v", h)
	}
}
