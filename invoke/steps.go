package invoke

import (
	"cmp"
	"math"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Step is one of the twelve steps.
type Step int

const (
	StepAdmit Step = iota
	StepResolve
	StepAuthorise
	StepValidate
	StepLimit
	StepRecall
	StepApprove
	StepClaim
	StepEquip
	StepExecute
	StepInspect
	StepRecord
	stepCount
)

// StepNames are the steps' names in logs, metrics and explanations.
var StepNames = [stepCount]string{"admit", "resolve", "authorise", "validate", "limit", "recall",
	"approve", "claim", "equip", "execute", "inspect", "record"}

func (s Step) String() string { return StepNames[s] }

// Steps has each step's duration; 0 if it was not reached.
type Steps struct{ Durations [stepCount]time.Duration }

// noteSteps writes into the row how long the steps took. ended is the number of the step, from 1, at which the call ended or waits.
func (a *activeCall) noteSteps(ended int) {
	for i, d := range a.steps.Durations[:StepRecord] {
		a.row.Steps.US[i] = uint32(min(max(d.Microseconds(), 0), math.MaxUint32))
	}
	a.row.Steps.Ended = uint8(ended)
}

// endedAt is the number of the step, from 1, that ended the call: of one that failed while it was carried out, the last that ran.
func (a *activeCall) endedAt(failed bool) int {
	if a.stopped > 0 || !failed {
		return cmp.Or(a.stopped, int(stepCount))
	}
	for s := StepInspect; s >= StepEquip; s-- {
		if a.steps.Durations[s] > 0 {
			return int(s) + 1
		}
	}
	return int(StepExecute) + 1 // of a run that another call began
}

// StepTime is how a step of a recorded call went.
type StepTime struct {
	Step    int    `json:"step" minimum:"1" maximum:"12"`
	Name    string `json:"name" enum:"admit,resolve,authorise,validate,limit,recall,approve,claim,equip,execute,inspect,record"`
	TookUS  int64  `json:"took_us" doc:"microseconds; of record always 0, since it writes this"`
	Outcome string `json:"outcome" enum:"pass,refuse,wait,not_run" doc:"refuse: the call ended here with its error"`
}

// StepsOf tells how the steps of a recorded call went, nil where its record does not say.
func StepsOf(v *toolkeep.Invocation) []StepTime {
	ended := int(v.Steps.Ended)
	if ended == 0 {
		return nil
	}
	all := make([]StepTime, stepCount)
	for s := range stepCount {
		t := StepTime{Step: int(s) + 1, Name: s.String(), TookUS: int64(v.Steps.US[s]), Outcome: "pass"}
		switch {
		case s == StepRecord && v.State.Ended():
		case t.Step > ended, v.Cached && s >= StepEquip && t.TookUS == 0:
			t.Outcome = "not_run"
		case t.Step == ended && !v.State.Ended():
			t.Outcome = "wait"
		case t.Step == ended && v.Code != "" && v.State != toolkeep.CallExpired:
			t.Outcome = "refuse"
		}
		all[s] = t
	}
	return all
}

// noteTry adds an attempt that began at began, of a step execute that began at start.
func noteTry(res *toolkeep.Result, start, began time.Time, took time.Duration, fault *toolkeep.Error, tool string) {
	t := toolkeep.Try{AtUS: began.Sub(start).Microseconds(), TookUS: took.Microseconds(), Tool: tool}
	if fault != nil {
		t.Code = fault.Code
	}
	if len(res.Tries) == toolkeep.MaxTries {
		res.Tries = res.Tries[:toolkeep.MaxTries-1]
	}
	res.Tries = append(res.Tries, t)
}
