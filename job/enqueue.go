package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivershared/uniquestates"
	"github.com/riverqueue/river/rivertype"

	"github.com/toolkeep/toolkeep"
)

// kind is the kind of this package's jobs in the queue's table.
const kind = "toolkeep_call"

// callArgs is a job's payload. Tenant and id make it unique among waiting jobs; Failed
// counts consecutive returns by the Runner.
type callArgs struct {
	Tenant string `json:"tenant" river:"unique"`
	ID     string `json:"id" river:"unique"`
	Failed int    `json:"failed,omitempty"`
}

func (callArgs) Kind() string { return kind }

// waitingOnce limits River's uniqueness to waiting jobs. River includes running jobs
// because it may move them back to waiting, where they could meet another with the same
// key; this package never moves them back (see again).
//
// It also makes jobs for later available at once: the fetcher skips jobs that are not
// due, so no scheduler has to move them.
type waitingOnce struct{ river.HookDefaults }

func (*waitingOnce) InsertBegin(_ context.Context, p *rivertype.JobInsertParams) error {
	p.UniqueStates = uniquestates.UniqueStatesToBitmask([]rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending,
		rivertype.JobStateRetryable, rivertype.JobStateScheduled,
	})
	if p.State == rivertype.JobStateScheduled {
		p.State = rivertype.JobStateAvailable
	}
	return nil
}

// Enqueue adds the call to the queue in tx, to run no earlier than e.At. An id that
// already waits is not added again, but takes the earlier time and the higher priority
// of the two.
func (q *Queue[TTx]) Enqueue(ctx context.Context, tx TTx, e toolkeep.Enqueue) error {
	if e.Call.ID == "" {
		return errors.New("job: enqueue: the call has no id")
	}
	p, err := rank(e.Priority)
	if err != nil {
		return err
	}
	return q.insert(ctx, tx, callArgs{Tenant: e.Call.Tenant, ID: e.Call.ID}, p, e.At)
}

func (q *Queue[TTx]) insert(ctx context.Context, tx TTx, a callArgs, priority int, at time.Time) error {
	res, err := q.client.InsertTx(ctx, tx, a, &river.InsertOpts{
		Queue:       queueName,
		Priority:    priority,
		ScheduledAt: at,
		UniqueOpts:  river.UniqueOpts{ByArgs: true},
	})
	if err != nil {
		return fmt.Errorf("job: enqueue: %w", err)
	}
	if res.UniqueSkippedAsDuplicate {
		if at.IsZero() {
			at = time.Now()
		}
		if err := q.store.bringForward(ctx, tx, res.Job.ID, priority, at); err != nil {
			return fmt.Errorf("job: enqueue: %w", err)
		}
	}
	q.store.announce()
	return nil
}

// rank returns River's priority; 1 is first.
func rank(p toolkeep.Priority) (int, error) {
	switch p {
	case toolkeep.High:
		return 1, nil
	case toolkeep.Normal, "":
		return 2, nil
	case toolkeep.Low:
		return 3, nil
	}
	return 0, fmt.Errorf("job: enqueue: unknown priority %q; use high, normal or low", string(p))
}

// Depth counts the waiting jobs by priority, including those for later.
func (q *Queue[TTx]) Depth(ctx context.Context) (map[toolkeep.Priority]int, error) {
	counts, err := q.store.depth(ctx)
	if err != nil {
		return nil, fmt.Errorf("job: depth: %w", err)
	}
	d := map[toolkeep.Priority]int{toolkeep.High: 0, toolkeep.Normal: 0, toolkeep.Low: 0}
	for p, n := range counts {
		switch p {
		case 1:
			d[toolkeep.High] += n
		case 2:
			d[toolkeep.Normal] += n
		default:
			d[toolkeep.Low] += n
		}
	}
	return d, nil
}
