package job

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivershared/uniquestates"
	"github.com/riverqueue/river/rivertype"

	"github.com/toolkeep/toolkeep"
)

// kind names the jobs of this package in the queue's table.
const kind = "toolkeep_call"

// callArgs is all that a job carries. Tenant and id make it unique among what
// waits; Failed counts the times in a row that the Runner sent it back.
type callArgs struct {
	Tenant string `json:"tenant" river:"unique"`
	ID     string `json:"id" river:"unique"`
	Failed int    `json:"failed,omitempty"`
}

func (callArgs) Kind() string { return kind }

// waitingOnce narrows River's uniqueness to jobs that wait. River wants running
// jobs among the unique ones because it may move them back to waiting and would
// then meet another under the same key; this package never does (see again).
//
// It also puts jobs for later into the line at once: the fetcher passes over what
// is not due, so no scheduler has to move them.
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

// Enqueue lets the call wait for a worker, not before e.At, as part of tx. An id
// that already waits is not added again, but takes the earlier time and the
// higher priority of the two.
func (q *Queue) Enqueue(ctx context.Context, tx *sql.Tx, e toolkeep.Enqueue) error {
	if e.Call.ID == "" {
		return errors.New("job: enqueue: the call has no id")
	}
	p, err := rank(e.Priority)
	if err != nil {
		return err
	}
	return q.insert(ctx, tx, callArgs{Tenant: e.Call.Tenant, ID: e.Call.ID}, p, e.At)
}

func (q *Queue) insert(ctx context.Context, tx *sql.Tx, a callArgs, priority int, at time.Time) error {
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
		if err := bringForward(ctx, tx, res.Job.ID, priority, at); err != nil {
			return err
		}
	}
	// The fetcher waits for the connection that tx holds, see doc.go.
	q.driver.wake()
	return nil
}

// bringForward makes a waiting job as urgent as the more urgent of two wishes.
func bringForward(ctx context.Context, tx *sql.Tx, id int64, priority int, at time.Time) error {
	if at.IsZero() {
		at = time.Now()
	}
	_, err := tx.ExecContext(ctx, `UPDATE river_job
		SET priority = min(priority, ?), scheduled_at = min(scheduled_at, ?)
		WHERE id = ? AND state = 'available'`, priority, dbTime(at), id)
	if err != nil {
		return fmt.Errorf("job: enqueue: %w", err)
	}
	return nil
}

// dbTime is a time as the queue's table holds it; times compare as text.
func dbTime(t time.Time) string {
	return t.UTC().Round(time.Millisecond).Format("2006-01-02 15:04:05.000")
}

// rank gives River's priority, 1 is the first.
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

// Depth counts the waiting jobs by priority, those for later among them.
func (q *Queue) Depth(ctx context.Context) (map[toolkeep.Priority]int, error) {
	rows, err := q.db.QueryContext(ctx, `SELECT priority, count(*) FROM river_job
		WHERE queue = ? AND state = 'available' GROUP BY priority`, queueName)
	if err != nil {
		return nil, fmt.Errorf("job: depth: %w", err)
	}
	defer func() { _ = rows.Close() }() // what matters is in rows.Err
	d := map[toolkeep.Priority]int{toolkeep.High: 0, toolkeep.Normal: 0, toolkeep.Low: 0}
	for rows.Next() {
		var p, n int
		if err := rows.Scan(&p, &n); err != nil {
			return nil, fmt.Errorf("job: depth: %w", err)
		}
		switch p {
		case 1:
			d[toolkeep.High] += n
		case 2:
			d[toolkeep.Normal] += n
		default:
			d[toolkeep.Low] += n
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("job: depth: %w", err)
	}
	return d, nil
}

// reclaim lets the jobs wait again that a dead process was working on. Where the
// call was enqueued anew in the meantime the old job is dropped.
func (q *Queue) reclaim(ctx context.Context) error {
	tx, err := q.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("job: start: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit there is nothing to roll back
	for _, stmt := range []string{
		`UPDATE OR IGNORE river_job SET state = 'available' WHERE state = 'running' AND kind = ?`,
		`DELETE FROM river_job WHERE state = 'running' AND kind = ?`,
	} {
		if _, err := tx.ExecContext(ctx, stmt, kind); err != nil {
			return fmt.Errorf("job: start: take up the jobs of a dead process: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("job: start: %w", err)
	}
	return nil
}

// cleanBatch bounds how long one statement of clean holds the connection.
const cleanBatch = 500

// clean removes jobs that are over; the invocation row has their story.
func (q *Queue) clean(ctx context.Context) error {
	for {
		r, err := q.db.ExecContext(ctx, `DELETE FROM river_job WHERE id IN (
			SELECT id FROM river_job
			WHERE finalized_at IS NOT NULL AND state IN ('completed', 'cancelled', 'discarded')
			LIMIT ?)`, cleanBatch)
		if err != nil {
			return fmt.Errorf("job: remove finished jobs: %w", err)
		}
		if n, err := r.RowsAffected(); err != nil || n < cleanBatch {
			return err
		}
	}
}
