package pgvector

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// abandoned is how long a model's vectors are kept that no node uses, in case it is used again,
// like the files of discover.Memory.
const abandoned = 30 * 24 * time.Hour

// sweep drops the tables of other models that no node has used for 30 days. It is called when every
// text in use has a vector of v's model.
//
// Nodes with other settings or older builds are safe: each marks rows of its model as used when it
// opens the table (migrate), puts vectors, and twice a day (Retain), and the newest mark in the
// table decides. A node that opens the table concurrently waits for the same lock, and finds the
// table marked or creates it again. A table without rows has no mark and stays; it costs nothing.
//
// Failures are logged and retried the next time: no node depends on the sweep.
func (v *vectors) sweep(ctx context.Context) {
	log := v.b.log.With("part", "vectors")
	others, err := v.others(ctx)
	if err != nil {
		log.Warn("the models that have vectors cannot be listed", "error", explain(err))
		return
	}
	before := v.b.clock().UTC().Add(-abandoned)
	for id, model := range others {
		dropped, err := v.b.drop(ctx, id, before)
		switch {
		case err != nil:
			log.Warn("the vectors of a model that is not used any more cannot be deleted", "model", model, "table", table(id), "error", explain(err))
		case dropped:
			log.Info("the vectors of a model that no node used for 30 days are deleted", "model", model, "table", table(id))
		}
	}
}

// others returns the other models with vectors.
func (v *vectors) others(ctx context.Context) (map[int64]string, error) {
	rows, err := v.b.pool.Query(ctx, `SELECT id, model FROM toolkeep_vector_spaces WHERE NOT (model = $1 AND dimensions = $2)`, v.model, v.dimensions)
	if err != nil {
		return nil, err
	}
	out := map[int64]string{}
	var id int64
	var model string
	_, err = pgx.ForEachRow(rows, []any{&id, &model}, func() error {
		out[id] = model
		return nil
	})
	return out, err
}

// drop deletes a model's table if it has rows, none of them used since before.
func (b *Backend) drop(ctx context.Context, id int64, before time.Time) (dropped bool, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		// Do not wait for searches that still read the table, nor block them.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, lock); err != nil {
			return err
		}
		var there, used bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, table(id)).Scan(&there); err != nil || !there {
			return err
		}
		// No node can mark a row between the check and the drop.
		if _, err := tx.Exec(ctx, `LOCK TABLE `+table(id)+` IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		// The database's clock counts too: this node's may be ahead of those that use the table.
		if err := tx.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM `+table(id)+`) OR EXISTS (SELECT FROM `+table(id)+` WHERE used >= LEAST($1::date, current_date - $2::int))`,
			before, int(abandoned/(24*time.Hour))).Scan(&used); err != nil || used {
			return err
		}
		if _, err := tx.Exec(ctx, `DROP TABLE `+table(id)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM toolkeep_vector_spaces WHERE id = $1`, id)
		dropped = err == nil
		return err
	})
	return dropped && err == nil, err
}

// mark records the use of a table in one of its rows.
func (v *vectors) mark(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `UPDATE `+v.table+` SET used = $1 WHERE place = (SELECT place FROM `+v.table+` ORDER BY place LIMIT 1 FOR UPDATE SKIP LOCKED) AND used < $1`, v.b.clock().UTC())
	return err
}

// gone reports whether the table has been dropped.
func gone(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "42P01"
}
