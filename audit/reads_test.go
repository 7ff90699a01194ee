package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
)

// taking is a store that keeps events, or fails while away.
type taking struct {
	mu      sync.Mutex
	away    bool
	applies int
	events  []map[string]any
	types   map[string]bool
}

func (s *taking) Apply(_ context.Context, changes ...toolkeep.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("the store is away")
	}
	s.applies++
	for _, c := range changes {
		e := c.(toolkeep.AppendEvent).Event
		data := map[string]any{}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return err
		}
		if data["tenant_id"] != e.Tenant || e.ID == "" || e.Time.IsZero() {
			return fmt.Errorf("the event is %+v", e)
		}
		s.events = append(s.events, data)
		if s.types == nil {
			s.types = map[string]bool{}
		}
		s.types[e.Type] = true
	}
	return nil
}

func (s *taking) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func robot(tenant, subject string) *toolkeep.Principal {
	return &toolkeep.Principal{Tenant: tenant, Subject: subject, OnBehalf: "ann", KeyID: "k", Addr: "192.0.2.7", UserAgent: "robot/1", Chain: []string{"ann", "desk"}}
}

var notFound = toolkeep.NewError(toolkeep.ToolNotFound, "there is no such tool")

func TestReadEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for which, want := range map[string]int{"": 3, audit.AllReads: 3, audit.RefusedReads: 2, audit.NoReads: 0} {
			s := &taking{}
			r := audit.NewReads(audit.ReadsConfig{Store: s, Which: which, Clean: func(text string) string { return strings.ReplaceAll(text, "s3cret", "[secret]") }})
			p := robot("t", "a")
			for _, d := range []audit.Read{
				{What: audit.ReadList, Query: "send mail", Found: 3, Face: "rest", Session: "s"},
				{What: audit.ReadManifest, Tool: "no.s3cret" + strings.Repeat("x", 9000), Version: "\xff1", Err: notFound},
				{What: audit.ReadExport, Err: toolkeep.NewError(toolkeep.RegistryUnavailable, "away")},
				{What: audit.ReadSearch, Found: 1}, // has an event of its own
				{What: audit.ReadContext, Found: 1},
				{What: audit.ReadSearch, Err: toolkeep.NewError(toolkeep.NoToolMatches, "none")},
			} {
				audit.Tell(r, p, d)
			}
			audit.Tell(nil, p, audit.Read{What: audit.ReadList})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			r.Stop()
			r.Stop()
			if len(s.events) != want || want > 0 && (s.applies != 1 || !s.types[audit.EventRead] || len(s.types) != 1) {
				t.Errorf("%q: %d events in %d commits of %v", which, len(s.events), s.applies, s.types)
			}
			if got := r.Stats(); got != (audit.ReadStats{Written: int64(want)}) {
				t.Errorf("%q: %+v", which, got)
			}
			if which != audit.AllReads {
				continue
			}
			text := fmt.Sprint(s.events[0])
			if strings.Contains(text, "mail") || s.events[0]["query_digest"] == nil {
				t.Errorf("the query is in %s", text)
			}
			for name, v := range map[string]any{"action": "retrieve", "what": "list", "agent_did": "a", "user_did": "ann", "key_id": "k", "ip_address": "192.0.2.7", "user_agent": "robot/1",
				"session_id": "s", "face": "rest", "found": 3.0, "decision": "allowed"} {
				if s.events[0][name] != v {
					t.Errorf("%s is %v, want %v", name, s.events[0][name], v)
				}
			}
			refused := s.events[1]
			if id := refused["tool_id"].(string); refused["error_code"] != "E3001" || refused["decision"] != "refused" || refused["found"] != nil || len(id) > 300 || !strings.HasPrefix(id, "no.[secret]x") {
				t.Errorf("the refused read is %v", refused)
			}
			if s.events[2]["decision"] != "failed" {
				t.Errorf("a read that failed is %v", s.events[2])
			}
		}
	})
}

// A reader in a loop has 100 events a minute, refused reads and others apart, and one that counts the rest.
func TestReadsInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &taking{}
		r := audit.NewReads(audit.ReadsConfig{Store: s})
		time.Sleep(time.Second)
		loop, quiet := robot("t", "loop"), robot("t", "quiet")
		for range 1000 {
			r.Read(loop, audit.Read{What: audit.ReadList})
		}
		for range 150 {
			r.Read(loop, audit.Read{What: audit.ReadManifest, Tool: "no.such", Err: notFound})
		}
		r.Read(quiet, audit.Read{What: audit.ReadList})
		time.Sleep(time.Minute)
		synctest.Wait()
		r.Read(loop, audit.Read{What: audit.ReadList})
		r.Stop()
		counts, further := map[string]int{}, map[string]float64{}
		for _, e := range s.events {
			who := fmt.Sprint(e["agent_did"], " ", e["decision"])
			if e["what"] == "further" {
				further[who] += e["times"].(float64)
				continue
			}
			counts[who]++
		}
		if fmt.Sprint(counts, further) != "map[loop allowed:101 loop refused:100 quiet allowed:1] map[loop allowed:900 loop refused:50]" {
			t.Errorf("%v %v", counts, further)
		}
	})
}

// More agents than are counted by themselves share a count for each tenant, which is told although the
// buffer is full.
func TestManyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &taking{}
		r := audit.NewReads(audit.ReadsConfig{Store: s})
		s.mu.Lock() // while it is held, nothing is written
		for i := range 40_000 {
			r.Read(robot("t", fmt.Sprint(i)), audit.Read{What: audit.ReadList})
		}
		s.mu.Unlock()
		r.Stop()
		last := s.events[len(s.events)-1]
		if got := r.Stats(); last["what"] != "further" || last["times"] != 29_900.0 || last["agent_did"] != nil || got.Written+got.Lost != 10_101 || got.Lost < 4000 {
			t.Errorf("%+v, and at last %v", got, last)
		}
	})
}

// What does not fit while the store is away is counted, told once, and what waits is written later.
func TestFullBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &taking{away: true}
		log := &strings.Builder{}
		r := audit.NewReads(audit.ReadsConfig{Store: s, Log: slog.New(slog.NewTextHandler(log, nil))})
		for i := range 6000 {
			r.Read(robot("t", fmt.Sprint(i)), audit.Read{What: audit.ReadList})
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := r.Stats(); got != (audit.ReadStats{Lost: 1000, Waiting: 5000}) {
			t.Errorf("while the store is away: %+v", got)
		}
		s.set(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := r.Stats(); got != (audit.ReadStats{Lost: 1000, Written: 5000}) || s.applies != 50 {
			t.Errorf("afterwards: %+v in %d commits", got, s.applies)
		}
		r.Read(robot("t", "one"), audit.Read{What: audit.ReadList})
		r.Stop()
		if got := r.Stats(); got.Written != 5001 || s.events[0]["agent_did"] != "0" || s.events[5000]["agent_did"] != "one" {
			t.Errorf("at the end: %+v", got)
		}
		if n := strings.Count(log.String(), "left out of the audit"); n != 1 || strings.Count(log.String(), "left_out=1000") != 1 {
			t.Errorf("told %d times:\n%.2000s", n, log)
		}
	})
}

func TestReadsAtOnce(t *testing.T) {
	s := &taking{}
	r := audit.NewReads(audit.ReadsConfig{Store: s})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 500 {
				r.Read(robot("t", fmt.Sprint(i%4)), audit.Read{What: audit.ReadList})
			}
		})
	}
	all.Wait()
	r.Stop()
	n := 0.0
	for _, e := range s.events {
		if times, ok := e["times"].(float64); ok {
			n += times
		} else {
			n++
		}
	}
	if n != 4000 {
		t.Errorf("%v reads are told", n)
	}
}

// What was decided about a read is found by it, and other events do not pass for a decision.
func TestReadDecision(t *testing.T) {
	for _, x := range []struct{ kind, data, want string }{
		{audit.EventRead, `{"decision":"refused"}`, audit.Refused},
		{audit.EventRead, `{"decision":"allowed"}`, audit.Allowed},
		{"ai.agent.tool.approval.decided", `{"decision":"refused"}`, audit.Allowed},
		{"ai.agent.tool.approval.decided", `{"decision":"approved"}`, audit.Allowed},
		{"ai.agent.tool.approval.decided", `{"decision":"denied"}`, audit.Refused},
		{"ai.agent.tool.approval.decided", `{"decision":"expired"}`, audit.Refused},
		{"ai.agent.tool.approval.decided", `{"erased":true}`, audit.Allowed},
	} {
		e, err := audit.NewEntry(&toolkeep.Link{Ref: "i", Tenant: "t"}, &toolkeep.Entry{Event: &toolkeep.Event{ID: "i", Type: x.kind, Data: []byte(x.data)}})
		if err != nil || e.Decision() != x.want {
			t.Errorf("%s %s: %v, want %s", x.kind, x.data, e.Decision(), x.want)
		}
	}
}
