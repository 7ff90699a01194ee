package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

const (
	// beatEvery is how often a node sends heartbeats for its jobs.
	beatEvery = 2 * time.Second
	// deadAfter is how long a job may go without a heartbeat before it is reclaimed.
	deadAfter = 8 * time.Second
	// reclaimBatch bounds the jobs that one pass reclaims.
	reclaimBatch = 200
)

// postgresQueue is the queue on PostgreSQL, which several nodes share.
type postgresQueue struct {
	pool    *pgxpool.Pool
	pooled  bool
	earlier func() string // a dead worker
	// working holds the jobs that this process runs.
	working *working
	// insert makes a call wait again.
	insert func(ctx context.Context, tx pgx.Tx, a callArgs, priority int, at time.Time) error
}

func newPostgres(c Config, q *Queue[pgx.Tx]) *postgresQueue {
	if c.Earlier == nil {
		c.Earlier = func() string { return "" }
	}
	return &postgresQueue{pool: c.Pool, pooled: c.Pooled, earlier: c.Earlier, working: &q.working, insert: q.insert}
}

func (p *postgresQueue) driver() riverdriver.Driver[pgx.Tx]   { return riverpgxv5.New(p.pool) }
func (p *postgresQueue) migrator() riverdriver.Driver[pgx.Tx] { return riverpgxv5.New(p.pool) }
func (p *postgresQueue) settle(c *river.Config)               { c.PollOnly = p.pooled }
func (p *postgresQueue) announce()                            {} // River notifies within the transaction

func (p *postgresQueue) periodic() []Periodic {
	return []Periodic{
		{Name: "job.beat", Every: beatEvery, Run: p.beat},
		{Name: "job.reclaim", Every: beatEvery, Run: p.reclaim},
		{Name: "job.clean", Every: cleanEvery, Run: p.clean},
	}
}

func (p *postgresQueue) inTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, p.pool, f)
}

func (p *postgresQueue) bringForward(ctx context.Context, tx pgx.Tx, id int64, priority int, at time.Time) error {
	_, err := tx.Exec(ctx, `UPDATE river_job
		SET priority = least(priority, $1), scheduled_at = least(scheduled_at, $2)
		WHERE id = $3 AND state = 'available'`, priority, at, id)
	return err
}

func (p *postgresQueue) depth(ctx context.Context) (map[int]int, error) {
	rows, err := p.pool.Query(ctx, `SELECT priority, count(*) FROM river_job
		WHERE queue = $1 AND state = 'available' GROUP BY priority`, queueName)
	if err != nil {
		return nil, err
	}
	d := make(map[int]int)
	var priority, n int
	_, err = pgx.ForEachRow(rows, []any{&priority, &n}, func() error {
		d[priority] = n
		return nil
	})
	return d, err
}

// migrateLock is the advisory lock for migrating the queue, held by one node at a time.
const migrateLock = 0x746f6f6c6a6f6273

// alone holds the lock in a transaction on its own connection and closes it afterwards: f
// needs the pool, which may have no connection to spare. A lock of the session would be a
// pooler's.
func (p *postgresQueue) alone(ctx context.Context, f func() error) (err error) {
	conn, err := pgx.ConnectConfig(ctx, p.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil { // f takes as long as it takes
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrateLock)); err != nil {
			return fmt.Errorf("wait for the other node that migrates: %w", err)
		}
		return f()
	})
}

// beat sends a heartbeat for every job that this node runs. It uses the database's
// time, so that the nodes' clocks do not matter.
func (p *postgresQueue) beat(ctx context.Context) error {
	ids := p.working.list()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	_, err := p.pool.Exec(ctx, `UPDATE river_job SET attempted_at = now()
		WHERE state = 'running' AND id = ANY($1::bigint[])`, ids)
	if err != nil {
		return fmt.Errorf("job: say that this node lives: %w", err)
	}
	return nil
}

// reclaim makes calls wait again whose jobs have no recent heartbeat or were an earlier
// run's. If the node was
// only slow, this is one superfluous job: the call's row says who holds it.
func (p *postgresQueue) reclaim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	err := p.inTx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `DELETE FROM river_job WHERE id IN (
				SELECT id FROM river_job
				WHERE state = 'running' AND kind = $1 AND (attempted_at < now() - $2 * interval '1 second'
					OR attempted_by[array_upper(attempted_by, 1)] = $4)
				LIMIT $3 FOR UPDATE SKIP LOCKED)
			RETURNING args, priority`, kind, deadAfter.Seconds(), reclaimBatch, p.earlier())
		if err != nil {
			return err
		}
		type dead struct {
			args     []byte
			priority int
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d dead, err error) {
			return d, row.Scan(&d.args, &d.priority)
		})
		if err != nil {
			return err
		}
		for _, d := range list {
			var a callArgs
			if err := json.Unmarshal(d.args, &a); err != nil {
				return err
			}
			if err := p.insert(ctx, tx, a, d.priority, time.Time{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("job: take up the jobs of dead nodes: %w", err)
	}
	return nil
}

// clean removes finished jobs; their history is in the invocation row.
func (p *postgresQueue) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	for {
		tag, err := p.pool.Exec(ctx, `DELETE FROM river_job WHERE id IN (
			SELECT id FROM river_job
			WHERE finalized_at IS NOT NULL AND state IN ('completed', 'cancelled', 'discarded')
			LIMIT $1 FOR UPDATE SKIP LOCKED)`, cleanBatch)
		if err != nil {
			return fmt.Errorf("job: remove finished jobs: %w", err)
		}
		if tag.RowsAffected() < cleanBatch {
			return nil
		}
	}
}
