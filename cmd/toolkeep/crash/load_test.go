package crash_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
)

const (
	loadCalls   = 200
	loadClients = 16
	loadRounds  = 3
)

// asked is a call with what its caller got.
type askedCall struct {
	ask
	kind kind
	got  row
	err  error // a broken connection
}

// killedUnderLoad kills the same directory's server three times in the middle of
// mixed calls and looks at all of them after each restart.
func (l *lab) killedUnderLoad(t *testing.T) {
	const seed = 20
	random := rand.New(rand.NewPCG(seed, 0))
	dir := l.dir(t)
	s := l.start(t, dir, "")
	var calls []*askedCall
	for round := range loadRounds {
		own := make([]*askedCall, loadCalls)
		for i := range own {
			k := kinds[random.IntN(len(kinds))]
			own[i] = &askedCall{ask: k.ask(fmt.Sprintf("round %d call %d", round, i)), kind: k}
		}
		after := 20 + random.IntN(loadCalls-60)
		answered := s.killAfter(after, own)
		t.Logf("seed %d, round %d: killed after %d answers, %d came", seed, round, after, answered)
		calls = append(calls, own...)
		s = l.start(t, dir, "")
		s.settled()
		checkAsked(t, s, calls)
	}
	s.stop()
	storeIsSound(t, dir)
}

// killAfter sends the calls from several clients and kills the server once so
// many were answered.
func (s *process) killAfter(n int, calls []*askedCall) (answered int64) {
	var next, got atomic.Int64
	var clients sync.WaitGroup
	for range loadClients {
		clients.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(calls) {
					return
				}
				c := calls[i]
				if c.got, c.err = s.call(c.ask); c.err == nil && got.Add(1) == int64(n) {
					_ = s.cmd.Process.Kill() // killed says whether it worked
				}
			}
		})
	}
	clients.Wait()
	s.killed()
	return got.Load()
}

// checkAsked holds every call against its record and against the notes.
func checkAsked(t *testing.T, s *process, calls []*askedCall) {
	t.Helper()
	wrote := map[string]int{}
	for _, n := range notes(t, s.dir) {
		wrote[n.ID]++
	}
	known := 0
	for _, c := range calls {
		is := s.record(c.id)
		lines := wrote[c.id]
		known += lines
		if lines > 1 || !c.kind.writes && lines > 0 {
			t.Errorf("%s %s wrote %d notes", c.kind.name, c.id, lines)
		}
		if why := c.contradicts(is, lines); why != "" {
			t.Errorf("%s %s: %s (caller got %s %v; record %s; %d notes)", c.kind.name, c.id, why, c.got, c.err, is, lines)
		}
	}
	if all := len(notes(t, s.dir)); all != known {
		t.Errorf("%d notes were written, %d of them by the calls", all, known)
	}
}

// contradicts says what is wrong with a call's record; "" if all is well.
func (c *askedCall) contradicts(is row, lines int) string {
	recorded := is.http == http.StatusOK
	switch {
	case c.err == nil && !recorded:
		return "it was answered and has no record"
	case c.err == nil && c.got.http == http.StatusOK && (c.got.Status != "success" || !is.is(toolkeep.CallSucceeded, "")):
		return "the record is not what was answered"
	case c.err == nil && c.got.http != http.StatusOK && c.got.http != http.StatusAccepted:
		return "it was refused"
	case lines > 0 && !recorded:
		return "it wrote and has no record"
	case !recorded:
		return ""
	case is.is(toolkeep.CallSucceeded, ""):
		if c.kind.writes && lines == 0 {
			return "it succeeded and wrote nothing"
		}
		return ""
	case is.is(toolkeep.CallUnknown, toolkeep.OutcomeUnknown) && c.kind.writes && !c.kind.repeatable:
		return ""
	case is.is(toolkeep.CallRefused, toolkeep.Draining) && c.kind.keyed && !c.kind.waiting && (!c.kind.writes || c.kind.repeatable):
		return ""
	}
	return "it must not end like this"
}

// batch is a group of manifests that is published all or not at all.
type batch struct {
	tools     []string
	version   string
	body      string
	published []publishedTool
}

type publishedTool struct {
	ToolID  string `json:"tool_id"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
	Created bool   `json:"created"`
}

func newBatch(group, version int) *batch {
	b := &batch{version: fmt.Sprintf("1.%d.0", version)}
	var list []any
	for i := range 5 {
		id := fmt.Sprintf("group%d.tool%d", group, i)
		b.tools = append(b.tools, id)
		list = append(list, map[string]any{"manifest": map[string]any{
			"schema_version": 1, "tool_id": id, "version": b.version, "description": "Gives a greeting back, edition " + b.version + ".",
			"side_effects": "none", "parameters_schema": map[string]any{"type": "object"},
			"execution": map[string]any{"kind": "builtin", "binding": map[string]any{"name": "echo"}}}})
	}
	raw, err := json.Marshal(map[string]any{"tools": list})
	if err != nil {
		panic(err) // nothing in it is not JSON
	}
	b.body = string(raw)
	return b
}

// killedWhilePublishing kills the server while several clients publish groups of
// tools, version upon version.
func (l *lab) killedWhilePublishing(t *testing.T) {
	const groups, versions, killAt = 6, 12, 25
	dir := l.dir(t)
	s := l.start(t, dir, "")
	batches := make([][]*batch, groups)
	var answered atomic.Int64
	var clients sync.WaitGroup
	for g := range groups {
		for v := range versions {
			batches[g] = append(batches[g], newBatch(g, v))
		}
		clients.Go(func() {
			for _, b := range batches[g] {
				if b.publish(s) != nil {
					return
				}
				if answered.Add(1) == killAt {
					_ = s.cmd.Process.Kill() // killed says whether it worked
				}
			}
		})
	}
	clients.Wait()
	s.killed()
	s = l.start(t, dir, "")
	for g := range groups {
		checkPublished(t, s, batches[g])
	}
	// Publishing goes on where it was broken off; what is there is not made again.
	for g := range groups {
		for _, b := range batches[g] {
			had := b.published != nil
			if err := b.publish(s); err != nil {
				t.Fatal(err)
			}
			if had && slices.ContainsFunc(b.published, func(p publishedTool) bool { return p.Created }) {
				t.Errorf("%s of group %d was made twice", b.version, g)
			}
		}
		checkPublished(t, s, batches[g])
	}
	if n := s.count("/api/v1/tools"); n != l.tools+groups*5 {
		t.Errorf("the catalogue has %d tools, want %d", n, l.tools+groups*5)
	}
	s.stop()
	storeIsSound(t, dir)
}

// publish sends the batch; the error is a broken connection or a refusal.
func (b *batch) publish(s *process) error {
	status, raw, err := s.do("POST", "/api/v1/tools/batch-register", b.body)
	if err != nil {
		return err
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return fmt.Errorf("%d %s", status, raw)
	}
	var answer struct {
		Published []publishedTool `json:"published"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return err
	}
	b.published = answer.Published
	return nil
}

// checkPublished looks that each batch is there whole or not at all, that those
// that were answered are there as they were answered, and that what is there can
// be called.
func checkPublished(t *testing.T, s *process, batches []*batch) {
	t.Helper()
	digests := map[string]map[string]string{} // tool, version
	latest := -1
	for _, id := range batches[0].tools {
		digests[id] = s.versions(id)
	}
	for i, b := range batches {
		n := 0
		for _, id := range b.tools {
			if digests[id][b.version] != "" {
				n++
			}
		}
		if n != 0 && n != len(b.tools) || n == 0 && b.published != nil {
			t.Errorf("%s of %s and its like: %d of %d are there, answered: %t", b.version, b.tools[0], n, len(b.tools), b.published != nil)
		}
		for _, p := range b.published {
			if digests[p.ToolID][p.Version] != p.Digest {
				t.Errorf("%s@%s has digest %s, published was %s", p.ToolID, p.Version, digests[p.ToolID][p.Version], p.Digest)
			}
		}
		if n > 0 {
			latest = i
		}
	}
	if latest < 0 {
		return
	}
	for _, id := range batches[0].tools {
		var tool publishedTool
		s.must("GET", "/api/v1/tools/"+id, "", http.StatusOK, &tool)
		if tool.Version != batches[latest].version {
			t.Errorf("%s is at %s, want %s", id, tool.Version, batches[latest].version)
		}
	}
	got, err := s.call(ask{tool: batches[0].tools[0], args: `{}`})
	if err != nil || got.Status != "success" && got.Code == "" && got.Error.Code == "" {
		t.Errorf("a published tool cannot be called: %s %v", got, err)
	}
}

// versions returns the digests of a tool's versions; none if there is no such tool.
func (s *process) versions(id string) map[string]string {
	s.t.Helper()
	status, raw, err := s.do("GET", "/api/v1/tools/"+id+"/versions", "")
	if err != nil {
		s.t.Fatal(err)
	}
	digests := map[string]string{}
	if status == http.StatusNotFound {
		return digests
	}
	var list struct{ Versions []publishedTool }
	if err := json.Unmarshal(raw, &list); err != nil || status != http.StatusOK {
		s.t.Fatalf("the versions of %s: %d %s", id, status, raw)
	}
	for _, v := range list.Versions {
		digests[v.Version] = v.Digest
	}
	return digests
}
