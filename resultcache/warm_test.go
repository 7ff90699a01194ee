package resultcache

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestWarm: a node that starts has the results that were used most, of tools that want it.
func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a := s.node(t)
		synctest.Wait()
		warm := *ttl
		warm.Warm, warm.TTLSeconds = true, 3600
		for n := range 30 {
			rule := &warm
			if n%2 == 1 {
				rule = ttl
			}
			call(a, n, "x.y", rule, always("run"))
			synctest.Wait()
		}
		<-time.After(listEvery)
		synctest.Wait()
		b := s.node(t)
		synctest.Wait()
		n := 0
		for i := range 30 {
			if b.Peek(keyOf(i)) {
				n++
				if i%2 == 1 {
					t.Errorf("the result of key %d is there, and its tool has no cache.warm", i)
				}
			}
		}
		if n != 10 {
			t.Errorf("%d results are there, want the 10 of Config.Warm", n)
		}
		if _, err := a.Drop(t.Context(), "t", "", "ann"); err == nil {
			t.Error("the node did not follow, and no error says so")
		}
		c := s.node(t)
		synctest.Wait()
		if st := c.Stats(); st.Entries != 0 {
			t.Errorf("%d dropped results are there", st.Entries)
		}
	})
}

// warmRule is that of a tool with cache.warm.
var warmRule = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 3600, Warm: true}

// fill has a node share results of a tool with cache.warm, and list them.
func fill(c *Cache, keys ...int) {
	for _, n := range keys {
		call(c, n, "x.y", warmRule, always("run"))
		synctest.Wait()
	}
	<-time.After(listEvery)
	synctest.Wait()
}

// has returns how many of the keys are in a node's memory.
func has(c *Cache, keys ...int) (n int) {
	synctest.Wait()
	for _, k := range keys {
		if c.Peek(keyOf(k)) {
			n++
		}
	}
	return n
}

// TestWarmOfSeveralNodes: a node that starts has what was used most on each of the others.
func TestWarmOfSeveralNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a := s.node(t)
		<-time.After(time.Second) // they do not write at the same moment, see sendWarm
		b := s.node(t)
		synctest.Wait()
		fill(a, 1, 2, 3)
		fill(b, 4, 5, 6)
		c := s.node(t)
		if n, m := has(c, 1, 2, 3), has(c, 4, 5, 6); n != 3 || m != 3 {
			t.Errorf("%d and %d results of two nodes are there, want 3 each", n, m)
		}
		few := s.node(t, func(c *Config) { c.Warm = 4 })
		if n, m := has(few, 1, 2, 3), has(few, 4, 5, 6); n != 2 || m != 2 {
			t.Errorf("%d and %d results of two nodes are there, want 2 each", n, m)
		}
	})
}

// TestListsOfManyNodes: the lists that count are those of the nodes that wrote last.
func TestListsOfManyNodes(t *testing.T) {
	times := map[string]int64{}
	for n := range maxLists + 3 {
		times[strconv.Itoa(n)] = int64(n)
	}
	if got := newest(times); len(got) != maxLists || got[0] != strconv.Itoa(maxLists+2) || got[maxLists-1] != "3" {
		t.Errorf("%q", got)
	}
}

// TestWarmAfterSlowAnswers: a node waits for answers that would be too slow for a call, and tries again while there are none.
func TestWarmAfterSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a := s.node(t)
		synctest.Wait()
		fill(a, 1, 2, 3)
		s.remote.answers(400*time.Millisecond, nil)
		slow := s.node(t)
		<-time.After(5 * time.Second)
		if n := has(slow, 1, 2, 3); n != 3 {
			t.Errorf("with slow answers %d of 3 results are there", n)
		}

		s.remote.answers(time.Hour, nil)
		var log bytes.Buffer
		late := s.node(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		<-time.After(time.Minute)
		if n := has(late, 1, 2, 3); n != 0 || strings.Count(log.String(), "cannot be warmed yet") != 1 {
			t.Errorf("without answers %d results are there, and the log says:\n%s", n, &log)
		}
		if _, err := a.Drop(t.Context(), "t", "none", "ann"); err == nil { // so that the feed moves on
			t.Error("the node did not follow, and no error says so")
		}
		s.feed.catchUp(late)
		late.Broke() // does not wait for Redis
		synctest.Wait()
		if !late.sharing.current("t", "x.y", late.sharing.position.Applied()) {
			t.Error("the node does not follow the feed while Redis is away")
		}
		s.remote.answers(0, nil)
		<-time.After(5 * time.Second)
		if n := has(late, 1, 2, 3); n != 3 || strings.Count(log.String(), "was warmed") != 1 {
			t.Errorf("once there are answers %d of 3 results are there, and the log says:\n%s", n, &log)
		}
	})
}

// TestWarmWhenTheStoreIsBack: a node that had no results when Redis went away has them after it came back.
func TestWarmWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a, b := s.node(t), s.node(t)
		synctest.Wait()
		fill(a, 1, 2, 3)
		s.remote.answers(0, errors.New("connection refused"))
		want(t, b, 9, "run", "tool")
		s.remote.answers(0, nil)
		<-time.After(2 * time.Second)
		want(t, b, 10, "run", "tool") // finds that it answers
		if n := has(b, 1, 2, 3); n != 3 {
			t.Errorf("%d of 3 results are there", n)
		}
		asked := s.remote.asked()
		<-time.After(10 * time.Second)
		if n := s.remote.asked() - asked; n != 0 {
			t.Errorf("it goes on asking: %d requests", n)
		}
	})
}

// TestFeedIsLostWhileWarming: reading many results slowly does not keep a node from following the feed.
func TestFeedIsLostWhileWarming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a := s.node(t)
		synctest.Wait()
		fill(a, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		s.remote.answers(900*time.Millisecond, nil)
		b := s.node(t)
		<-time.After(3 * time.Second) // two lists, and the first of the results
		b.Broke()
		<-time.After(time.Second)
		if !b.sharing.current("t", "x.y", b.sharing.position.Applied()) {
			t.Error("the node does not follow the feed while it warms its cache")
		}
	})
}
