package main

import (
	"context"
	"errors"
	"sync"

	"github.com/toolkeep/toolkeep"
)

// items keeps items in memory, for as long as the scenario runs.
type items struct {
	mu     sync.Mutex
	now    map[place]toolkeep.Document
	count  map[place]int64
	follow func(toolkeep.Committed)
}

type place struct{ kind, tenant, id string }

func newItems() *items {
	return &items{now: map[place]toolkeep.Document{}, count: map[place]int64{}, follow: func(toolkeep.Committed) {}}
}

// Apply supports the two changes that logins make, one at a time.
func (s *items) Apply(_ context.Context, changes ...toolkeep.Change) error {
	for _, c := range changes {
		change, err := s.apply(c)
		if err != nil {
			return err
		}
		s.follow(toolkeep.Committed{Change: change})
	}
	return nil
}

func (s *items) apply(c toolkeep.Change) (toolkeep.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c := c.(type) {
	case toolkeep.PutDocument:
		at := place{c.Document.Kind, c.Document.Tenant, c.Document.ID}
		if old := s.now[at]; c.Expect != toolkeep.AnyRevision && old.Revision != c.Expect {
			return nil, toolkeep.ErrStale
		}
		s.count[at]++
		c.Document.Revision = s.count[at]
		s.now[at] = c.Document
		return c, nil
	case toolkeep.DeleteDocument:
		at := place{c.Kind, c.Tenant, c.ID}
		old, has := s.now[at]
		if !has {
			return nil, errors.Join(toolkeep.ErrNotFound, toolkeep.ErrStale)
		}
		if c.Expect != toolkeep.AnyRevision && old.Revision != c.Expect {
			return nil, toolkeep.ErrStale
		}
		delete(s.now, at)
		return c, nil
	}
	return nil, errors.New("this store keeps items alone")
}

// Document: see oauth.Store.
func (s *items) Document(_ context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, has := s.now[place{kind, tenant, id}]
	if !has {
		return it, toolkeep.ErrNotFound
	}
	return it, nil
}

// Documents: see oauth.Store.
func (s *items) Documents(_ context.Context, kind string) (list []toolkeep.Document, seq int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, it := range s.now {
		if at.kind == kind {
			list = append(list, it)
		}
	}
	return list, 0, nil
}
