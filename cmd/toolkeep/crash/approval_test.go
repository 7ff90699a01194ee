package crash_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

// killedAroundAnApproval: a writing call that a person approves is executed once, or is unknown
// where it was sent, wherever the process dies. A call that was asked for and not committed is not
// there, and one that was not decided goes on waiting.
func (l *lab) killedAroundAnApproval(t *testing.T) {
	for _, p := range []struct {
		at    string
		state toolkeep.CallState // once it is decided again, where that is needed; "" is no record
		lines int
	}{
		{"approve", "", 0},
		{"claim", toolkeep.CallSucceeded, 1}, // the worker's: a parked call comes there once
		{"answered", toolkeep.CallSucceeded, 1},
		{"release", toolkeep.CallSucceeded, 1},
		{"released", toolkeep.CallSucceeded, 1},
		{"lease", toolkeep.CallSucceeded, 1},
		{"leased", toolkeep.CallSucceeded, 1},
		{"admit:2", toolkeep.CallSucceeded, 1},
		{"resolve:2", toolkeep.CallSucceeded, 1},
		{"authorise:2", toolkeep.CallSucceeded, 1},
		{"validate:2", toolkeep.CallSucceeded, 1},
		{"limit:2", toolkeep.CallSucceeded, 1},
		{"recall:2", toolkeep.CallSucceeded, 1},
		{"approve:2", toolkeep.CallSucceeded, 1},
		{"equip", toolkeep.CallUnknown, 0},
		{"execute", toolkeep.CallUnknown, 0},
		{"inspect", toolkeep.CallUnknown, 1},
		{"record", toolkeep.CallUnknown, 1},
		{"ended", toolkeep.CallSucceeded, 1},
	} {
		t.Run(p.at, func(t *testing.T) {
			t.Parallel()
			dir := l.dir(t)
			first := l.start(t, dir, p.at)
			boss := first.keyFor("boss", "admin")
			a := ask{id: uuid.NewString(), tool: "std.note_append", async: true, approval: true, key: "k", args: `{"text":"once"}`}
			if got, err := first.call(a); err == nil {
				if got.Status != "pending_approval" {
					t.Fatalf("it was answered %s", got)
				}
				boss.decide(a.id)
			}
			first.killed()

			again := l.start(t, dir, "")
			if is := again.record(a.id); is.is(toolkeep.CallPendingApproval, "") {
				if status := again.as(boss.key).decide(a.id); status != http.StatusOK {
					t.Errorf("the decision was answered %d", status)
				}
			}
			again.settled()
			is := again.record(a.id)
			switch {
			case p.state == "" && is.http != http.StatusNotFound:
				t.Errorf("the call is %s, want no record", is)
			case p.state == toolkeep.CallUnknown && !is.is(p.state, toolkeep.OutcomeUnknown), p.state == toolkeep.CallSucceeded && !is.is(p.state, ""):
				t.Errorf("the call is %s, want %s", is, p.state)
			}
			if status := again.as(boss.key).decide(a.id); p.state != "" && status != http.StatusConflict {
				t.Errorf("a second decision was answered %d", status)
			}
			wrote(t, dir, a, p.lines)
			again.chainsAreWhole()
			again.stop()
			storeIsSound(t, dir)
		})
	}
}

// approver is a process as another caller sees it.
type approver struct {
	of  *process
	key string
}

func (s *process) as(key string) approver { return approver{s, key} }

// keyFor makes a key.
func (s *process) keyFor(subject, role string) approver {
	s.t.Helper()
	var made struct {
		Key string `json:"secret"`
	}
	s.must("POST", "/api/v1/keys", `{"subject":"`+subject+`","roles":["`+role+`"]}`, http.StatusCreated, &made)
	return s.as(made.Key)
}

// decide approves a call; 0 if the process died.
func (a approver) decide(id string) int {
	other := *a.of
	other.key = a.key
	status, _, err := other.do("POST", "/api/v1/approvals/"+id+"/approve", "{}")
	if err != nil {
		return 0
	}
	return status
}
