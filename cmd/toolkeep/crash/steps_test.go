package crash_test

import (
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
)

// kind is one kind of call.
type kind struct {
	name, tool                         string
	writes, keyed, repeatable, waiting bool
}

var kinds = []kind{
	{name: "reading", tool: "std.hash"},
	{name: "reading with key", tool: "std.hash", keyed: true},
	{name: "writing", tool: "std.note_append", writes: true},
	{name: "writing with key", tool: "std.note_append", writes: true, keyed: true},
	{name: "idempotent writing with key", tool: "crash.note", writes: true, keyed: true, repeatable: true},
	{name: "waiting reading", tool: "std.hash", waiting: true},
	{name: "waiting writing", tool: "std.note_append", writes: true, waiting: true},
	{name: "waiting writing with key", tool: "std.note_append", writes: true, keyed: true, waiting: true},
}

func (k kind) ask(text string) ask {
	a := ask{id: uuid.NewString(), tool: k.tool, async: k.waiting, args: `{"text":"` + text + `"}`}
	if k.keyed {
		a.key = "key of " + text
	}
	return a
}

// stage is how far a call is at a point.
type stage int

const (
	asked  stage = iota // nothing is committed
	queued              // the row is committed, nothing can have been sent
	sent                // something may have been sent
	over                // the end is committed
)

// point is a place to die at.
type point struct {
	at    string // TOOLKEEP_CRASH_AT
	stage stage
	done  bool // the tool was executed
}

// points are all places that a call of the kind comes by.
func (k kind) points() []point {
	first := []string{"admit", "resolve", "authorise", "validate", "limit", "recall", "approve", "claim"}
	var all []point
	for _, step := range first {
		all = append(all, point{at: step, stage: asked})
	}
	if k.waiting {
		for _, step := range []string{"answered", "lease", "leased"} {
			all = append(all, point{at: step, stage: queued})
		}
		for _, step := range first { // once more, in the worker
			all = append(all, point{at: step + ":2", stage: queued})
		}
	}
	all = append(all, point{at: "equip", stage: sent}, point{at: "execute", stage: sent},
		point{at: "inspect", stage: sent, done: true}, point{at: "record", stage: sent, done: true})
	if k.waiting {
		return append(all, point{at: "ended", stage: over, done: true})
	}
	return append(all, point{at: "answered", stage: over, done: true})
}

// fate is the required outcome of an interrupted call.
type fate struct {
	state toolkeep.CallState // "" is no record
	code  toolkeep.Code
	lines int // notes that it wrote
}

// fate follows from DESIGN, "The way of a call": a writing call that may have
// been sent is never repeated by itself; a waiting call that cannot have written
// is carried out; a synchronous one whose caller is gone leaves nothing behind
// that would keep its key from being used again.
func (k kind) fate(p point) fate {
	var f fate
	if p.done && k.writes {
		f.lines = 1
	}
	succeeds := fate{state: toolkeep.CallSucceeded}
	if k.writes {
		succeeds.lines = 1
	}
	switch {
	case p.stage == asked:
	case p.stage == over, p.stage == queued, k.waiting && !k.writes:
		return succeeds
	case k.writes && !k.repeatable:
		f.state, f.code = toolkeep.CallUnknown, toolkeep.OutcomeUnknown
	case k.keyed:
		f.state, f.code = toolkeep.CallRefused, toolkeep.Draining
	}
	return f
}

func (l *lab) killedAtEachStep(t *testing.T) {
	for _, k := range kinds {
		for _, p := range k.points() {
			t.Run(k.name+"/"+p.at, func(t *testing.T) {
				t.Parallel()
				l.killedAt(t, k, p)
			})
		}
	}
}

func (l *lab) killedAt(t *testing.T, k kind, p point) {
	dir := l.dir(t)
	first := l.start(t, dir, p.at)
	a := k.ask("once")
	got, err := first.call(a)
	first.killed()
	if err == nil && !k.waiting || err == nil && p.stage == asked {
		t.Errorf("the caller was answered %s by a process that died before", got)
	}

	again := l.start(t, dir, "")
	again.settled()
	want, is := k.fate(p), again.record(a.id)
	switch {
	case err == nil && is.http != http.StatusOK:
		t.Errorf("the caller was answered %s and there is no record: %s", got, is)
	case want.state == "" && is.http != http.StatusNotFound:
		t.Errorf("the call is %s, want no record", is)
	case want.state != "" && !is.is(want.state, want.code):
		t.Errorf("the call is %s, want %s %s", is, want.state, want.code)
	}
	if err == nil && got.http != http.StatusAccepted {
		t.Errorf("the waiting call was answered %s", got)
	}
	wrote(t, dir, a, want.lines)
	if k.keyed {
		l.repeat(t, again, k, a, want)
	}
	if n := again.count("/api/v1/tools"); n != l.tools {
		t.Errorf("the catalogue has %d tools, want %d", n, l.tools)
	}
	again.chainsAreWhole()
	again.stop()
	storeIsSound(t, dir)
}

// wrote fails if the call did not write so many notes.
func wrote(t *testing.T, dir string, a ask, want int) {
	t.Helper()
	n := 0
	for _, line := range notes(t, dir) {
		if line.ID == a.id {
			n++
		}
	}
	if n != want {
		t.Errorf("the call wrote %d notes, want %d", n, want)
	}
}

// repeat sends the call again with its key. Where the first one left the key
// free it is carried out now, else it gets what the first one got.
func (l *lab) repeat(t *testing.T, s *process, k kind, a ask, first fate) {
	t.Helper()
	b := a
	b.id = uuid.NewString()
	before := len(notes(t, s.dir))
	got, err := s.call(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.http == http.StatusAccepted {
		s.settled()
	}
	free := first.state == "" || first.state == toolkeep.CallRefused
	lines := len(notes(t, s.dir)) - before
	switch {
	case free:
		if is := s.record(b.id); got.ID != b.id || got.Metadata.Replayed || !is.is(toolkeep.CallSucceeded, "") {
			t.Errorf("the repeated call was answered %s and is %s; it should have been carried out", got, is)
		}
		if k.writes != (lines == 1) {
			t.Errorf("the repeated call wrote %d notes", lines)
		}
	case got.ID != a.id || !got.Metadata.Replayed || got.Error.Code != string(first.code) || lines != 0:
		t.Errorf("the repeated call was answered %+v and wrote %d notes; it should have got what the first one got", got, lines)
	}
}

func (l *lab) killedAtFirstStart(t *testing.T) {
	dir := t.TempDir()
	first := l.launch(t, dir, "admin_key")
	if first.serves() {
		t.Fatal("the server started")
	}
	first.killed()
	again := l.start(t, dir, "")
	if n := again.count("/api/v1/keys"); n != 1 {
		t.Errorf("there are %d keys, want the admin's alone", n)
	}
	again.stop()
	if files := leftovers(t, dir); len(files) > 0 {
		t.Errorf("files are left over: %v", files)
	}
	storeIsSound(t, dir)
}

func (l *lab) startedBesideADyingOne(t *testing.T) {
	dir := l.dir(t)
	first := l.start(t, dir, "")
	second := l.launch(t, dir, "")
	if second.serves() || second.ended() != "exit status 4" {
		t.Fatalf("a second server on the directory: %s", second.ended())
	}
	first.signal(syscall.SIGKILL)
	until(t, "the directory is free", func() bool { // it is when the kernel has buried the first
		second = l.launch(t, dir, "")
		return second.serves()
	})
	if got, err := second.call(kinds[0].ask("here")); err != nil || got.Status != "success" {
		t.Errorf("the second server answers %s %v", got, err)
	}
	first.killed()
	second.stop()
}

// leftovers returns files that a stopped server should not leave.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var odd []string
	for _, e := range entries {
		place, _ := datadir.PlaceOf(e.Name())
		if !place.AtStart && place.Name != datadir.Notes && place.Name != datadir.Started { // which the calls and each start write
			odd = append(odd, e.Name())
		}
	}
	return odd
}
