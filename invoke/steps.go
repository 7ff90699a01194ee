package invoke

import "time"

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
