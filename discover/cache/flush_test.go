package cache

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

func TestFlush(t *testing.T) {
	mail, weather := ask("send a message"), ask("weather of a town")
	words := mail
	words.Strategy = discover.Keyword
	bob := mail
	bob.Session.Subject = "bob"
	rival := mail
	rival.Session.Tenant = "rival"
	all := []discover.Query{mail, weather, words, bob, rival}
	for name, c := range map[string]struct {
		scope Scope
		id    string
		drops map[int]bool // ids of all dropped answers
		every bool         // of every tenant
	}{
		"all":                 {All, "", map[int]bool{0: true, 1: true, 2: true, 3: true}, false},
		"user":                {User, "ann", map[int]bool{0: true, 1: true, 2: true}, false},
		"a stranger":          {User, "eve", nil, false},
		"tool":                {Tool, "mail.send", map[int]bool{0: true, 2: true, 3: true}, false},
		"another tool":        {Tool, "no.such", nil, false},
		"strategy":            {Strategy, "keyword", map[int]bool{2: true}, false},
		"the default":         {Strategy, "hybrid", map[int]bool{0: true, 1: true, 3: true}, false},
		"one without answers": {Strategy, "semantic", nil, false},
		"all of every tenant": {All, "", map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(true)
			a, b := s.node(t, some()), s.node(t, some())
			for _, q := range all {
				a.warm(t, q)
				b.warm(t, q)
			}
			tenant := "acme"
			if c.every {
				tenant = ""
			}
			if err := a.Flush(t.Context(), tenant, "operator", c.scope, c.id); err != nil {
				t.Fatal(err)
			}
			// searched reports for each query whether the index was searched.
			searched := func(n *node) map[int]bool {
				out := map[int]bool{}
				for i, q := range all {
					at := moment{view: n.Snapshot(q.Session.Tenant), flushed: n.flushes(q.Session.Tenant)}
					k, _ := n.Cache.key(q)
					local, ok := n.local.GetIfPresent(k)
					if ok {
						_, ok = n.show(local, at, q, nil)
					}
					if !ok {
						if far := n.fetch(t.Context(), k); far != nil {
							_, ok = n.show(far, at, q, nil)
						}
					}
					if !ok {
						out[i] = true
					}
				}
				return out
			}
			if got := searched(a); fmt.Sprint(got) != fmt.Sprint(mapOr(c.drops)) {
				t.Errorf("here: %v are dropped, want %v", got, c.drops)
			}
			if got := searched(b); len(got) != 0 {
				t.Errorf("elsewhere, before the feed: %v are dropped", got)
			}
			s.follow(b)
			s.follow(a)
			if got := searched(b); fmt.Sprint(got) != fmt.Sprint(mapOr(c.drops)) {
				t.Errorf("elsewhere: %v are dropped, want %v", got, c.drops)
			}
			// A node that starts later does not take earlier answers from L2.
			late := s.node(t, some())
			if got := searched(late); fmt.Sprint(got) != fmt.Sprint(mapOr(c.drops)) {
				t.Errorf("later: %v are dropped, want %v", got, c.drops)
			}
			for _, q := range all {
				late.warm(t, q) // and new answers are cached
			}
		})
	}
}

func mapOr(m map[int]bool) map[int]bool {
	if m == nil {
		return map[int]bool{}
	}
	return m
}

// TestFlushWhileRemoteIsAway: L2's answers stay flushed when it returns.
func TestFlushWhileRemoteIsAway(t *testing.T) {
	s := newSystem(true)
	a := s.node(t, some())
	q := ask("send a message")
	a.warm(t, q)
	s.remote.set(errors.New("away"), false)
	if err := a.Flush(t.Context(), "acme", "operator", All, ""); err != nil {
		t.Fatal(err)
	}
	a.wantHit(t, q, false)
	s.remote.set(nil, false)
	s.clock.pass(time.Minute)
	b := s.node(t, some())
	b.wantHit(t, q, false)
}

func TestFlushesAreBounded(t *testing.T) {
	s := newSystem(true)
	a := s.node(t, some())
	q := ask("send a message")
	a.warm(t, q)
	for i := range maxMarks + 50 {
		if err := a.Flush(t.Context(), "acme", "x", User, fmt.Sprint("user", i)); err != nil {
			t.Fatal(err)
		}
	}
	if f := a.flushes("acme"); len(f.marks) != maxMarks || f.rev != maxMarks+50 {
		t.Errorf("%d marks, revision %d", len(f.marks), f.rev)
	}
	a.wantHit(t, q, false) // it is older than the oldest mark
	a.wantHit(t, q, true)
	if err := a.Flush(t.Context(), "acme", "x", User, "eve"); err != nil {
		t.Fatal(err)
	}
	a.wantHit(t, q, true)
	s.clock.pass(2*time.Hour + time.Second)
	if err := a.Flush(t.Context(), "acme", "x", User, "eve"); err != nil {
		t.Fatal(err)
	}
	if f := a.flushes("acme"); len(f.marks) != 1 {
		t.Errorf("%d marks are left of what is long over", len(f.marks))
	}
}

func TestFlushesMeet(t *testing.T) {
	s := newSystem(false)
	a, b := s.node(t, some()), s.node(t, some())
	s.shelf.race = func() {
		if err := b.Flush(t.Context(), "acme", "x", User, "bob"); err != nil {
			t.Error(err)
		}
	}
	if err := a.Flush(t.Context(), "acme", "x", User, "ann"); err != nil {
		t.Fatal(err)
	}
	if f := a.flushes("acme"); len(f.marks) != 2 || f.rev != 2 {
		t.Errorf("%+v", f)
	}
	s.follow(b)
	if f := b.flushes("acme"); len(f.marks) != 2 || f.rev != 2 {
		t.Errorf("%+v", f)
	}
	// An older change that arrives late has no effect.
	b.Follow(s.shelf.feed[0])
	if f := b.flushes("acme"); f.rev != 2 {
		t.Errorf("%+v", f)
	}
}

func TestFlushRefuses(t *testing.T) {
	s := newSystem(false)
	a := s.node(t, some())
	for _, c := range []struct {
		scope Scope
		id    string
	}{{All, "x"}, {User, ""}, {Tool, ""}, {Strategy, ""}, {"some", "x"}, {"", ""}, {User, string(make([]byte, maxID+1))}} {
		err := a.Flush(t.Context(), "acme", "x", c.scope, c.id)
		var e *toolkeep.Error
		if !errors.As(err, &e) || e.Code != toolkeep.InvalidParameters {
			t.Errorf("%q %q: %v", c.scope, c.id, err)
		}
	}
	q := ask("send a message")
	a.warm(t, q)
	s.shelf.fail = errors.New("disk full")
	err := a.Flush(t.Context(), "acme", "x", All, "")
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != toolkeep.RecordUnavailable {
		t.Errorf("%v", err)
	}
	a.wantHit(t, q, true)
	s.shelf.fail = nil

	// Unreadable flushes drop all earlier answers, and the next flush repairs them.
	item := toolkeep.Document{Kind: DocumentKind, Tenant: "acme", ID: itemID, Body: []byte("{"), Revision: 1}
	s.shelf.items = map[string]toolkeep.Document{DocumentKind + "\x00acme\x00" + itemID: item}
	a.Follow(toolkeep.Committed{Change: toolkeep.PutDocument{Document: item}})
	a.wantHit(t, q, false)
	a.wantHit(t, q, true)
	if err := a.Flush(t.Context(), "acme", "x", User, "ann"); err != nil {
		t.Fatal(err)
	}
	a.wantHit(t, q, false)
	a.Follow(toolkeep.Committed{Change: toolkeep.DeleteDocument{Kind: DocumentKind, Tenant: "acme", ID: itemID}})
	if f := a.flushes("acme"); f != none {
		t.Errorf("%+v", f)
	}
}

// TestDeletedFlushOfAllTenants: what a flush for all tenants dropped does not come back when the document of such flushes is
// deleted, nor when the next begins to count.
func TestDeletedFlushOfAllTenants(t *testing.T) {
	s := newSystem(false)
	a := s.node(t, some())
	q := ask("send a message")
	a.warm(t, q)
	flush := func() {
		t.Helper()
		if err := a.Flush(t.Context(), "", "operator", All, ""); err != nil {
			t.Fatal(err)
		}
		a.wantHit(t, q, false)
		a.wantHit(t, q, true)
	}
	for range 3 {
		flush()
		s.shelf.items = map[string]toolkeep.Document{}
		a.Follow(toolkeep.Committed{Change: toolkeep.DeleteDocument{Kind: DocumentKind, ID: itemID}})
		a.wantHit(t, q, false)
		a.wantHit(t, q, true)
	}
	flush()
}
