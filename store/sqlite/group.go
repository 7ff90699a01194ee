package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/toolkeep/toolkeep/store/record"
)

// group is one transaction of the writer.
type group struct {
	w     *writer
	tx    *sql.Tx
	stmts [statementCount]*sql.Stmt
	at    time.Time // the clock's time
	stamp time.Time // at in the feed's format

	current *request
	rows    []record.Encoded // feed rows of the Applies that have succeeded so far
	entries []record.Encoded // likewise of the journal
	alone   bool             // the request under way has one change that acts, so nothing of it is undone
	added   int              // rows added to writer.pending by this group
	ended   []endedRow       // rows of writer.pending that this group changed
	indexed int              // rows of writer.pending indexed by this transaction
	mark    int64
	dropped int64 // rows of the table claims removed by this transaction
}

// run executes all requests and commits. errs[i] is request i's own error; the returned
// error is the whole group's.
func (g *group) run(reqs []*request, errs []error) error {
	g.stamp = record.FromMicros(record.Micros(g.at))
	ctx := context.Background()
	tx, end, err := g.w.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	g.tx = tx
	g.entries = make([]record.Encoded, 0, len(reqs)+len(reqs)/4)
	for i, r := range reqs {
		g.current = r
		if r.Plain {
			for j := range r.Steps {
				g.emit(&r.Steps[j])
			}
			continue
		}
		do := g.isolated
		if g.alone = actsFirst(r.Steps); g.alone {
			do = g.single
		}
		if errs[i], err = do(r); err != nil {
			return err
		}
	}
	if err := g.insertRows(); err != nil {
		return fmt.Errorf("sqlite: write the feed and the journal: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlite: commit: %w", err)
	}
	return nil
}

// actsFirst reports whether the first change is the only one that can fail, and is not foreign.
func actsFirst(steps []step) bool {
	for _, st := range steps[1:] {
		if st.act != nil {
			return false
		}
	}
	return steps[0].act != nil && !steps[0].foreign
}

// single executes a request whose first change alone can fail, without a savepoint. Every change but
// Enqueue knows whether it will succeed before it writes, so a failed one leaves nothing
// behind; if SQLite itself fails midway, the whole group fails.
func (g *group) single(r *request) (failed, broken error) {
	changed, err := r.Steps[0].act(g, &r.Steps[0])
	if isDriver(err) {
		return nil, err
	}
	if err != nil {
		return err, nil
	}
	for i := range r.Steps {
		if i > 0 || changed {
			g.emit(&r.Steps[i])
		}
	}
	return nil, nil
}

// isolated executes one request inside a savepoint. failed is its own error; broken
// means that the transaction is lost or cannot be trusted.
func (g *group) isolated(r *request) (failed, broken error) {
	if _, err := g.exec(sqlSavepoint); err != nil {
		return nil, err
	}
	rows, entries, added, indexed, mark, dropped := len(g.rows), len(g.entries), g.added, g.indexed, g.mark, g.dropped
	for i := range r.Steps {
		st := &r.Steps[i]
		changed := true
		if st.act != nil {
			if changed, failed = st.act(g, st); failed != nil {
				break
			}
		}
		if changed {
			g.emit(st)
		}
	}
	if failed == nil {
		_, broken = g.exec(sqlRelease)
		return nil, broken
	}
	clear(g.rows[rows:])
	clear(g.entries[entries:])
	g.rows, g.entries = g.rows[:rows], g.entries[:entries]
	g.w.cutPending(len(g.w.pending) - (g.added - added))
	g.added, g.indexed, g.mark, g.dropped = added, indexed, mark, dropped
	// SQLite ends a transaction itself after errors such as a full disk. The savepoint
	// is gone then, and the group with it.
	if _, err := g.exec(sqlRollback); err != nil {
		return failed, fmt.Errorf("sqlite: the transaction was given up: %w", errors.Join(failed, err))
	}
	_, broken = g.exec(sqlRelease)
	return failed, broken
}

// emit adds the row of a change, if it has one.
func (g *group) emit(st *step) {
	switch {
	case st.InJournal():
		g.entries = append(g.entries, st.Encoded)
	case st.Kind != 0:
		g.rows = append(g.rows, st.Encoded)
	}
	if st.Kind == record.KindRecord {
		g.added++
		g.w.addPending(&pendingRow{callState: callState{call: st.Call, data: st.Data}, seq: g.w.entry + int64(len(g.entries)), notes: g.w.notes})
	}
}

// insertRows inserts the feed's rows one by one, since they are few, and those of the journal as
// many at a time as there is a statement for.
func (g *group) insertRows() error {
	for i := range g.rows {
		if err := g.insert(sqlFeed1, g.rows[i:i+1], g.w.head+int64(i)); err != nil {
			return err
		}
	}
	for done := 0; done < len(g.entries); {
		id, n := sqlJournal1, 1
		switch rest := len(g.entries) - done; {
		case rest >= 32:
			id, n = sqlJournal32, 32
		case rest >= 8:
			id, n = sqlJournal8, 8
		}
		if err := g.insertEntries(id, g.entries[done:done+n], g.w.entry+int64(done)); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// insert inserts rows whose numbers follow after.
func (g *group) insert(id int, rows []record.Encoded, after int64) error {
	at := any(record.Micros(g.at))
	args := g.w.args[:0]
	for i := range rows {
		r := &rows[i]
		args = append(args, after+int64(i)+1, at, r.Kind, r.Tenant, r.Ref, r.Data)
	}
	_, err := g.exec(id, args...)
	clear(args)
	g.w.args = args
	return err
}

// insertEntries inserts entries of the journal whose numbers follow after, with their hashes.
func (g *group) insertEntries(id int, rows []record.Encoded, after int64) error {
	micros := record.Micros(g.at)
	at := any(micros)
	args := g.w.args[:0]
	for i := range rows {
		r := &rows[i]
		seq := after + int64(i) + 1
		r.Hash = g.w.chain.Next(r, seq, micros)
		args = append(args, seq, at, r.Kind, r.Tenant, r.Ref, r.Data, r.Hash[:])
	}
	_, err := g.exec(id, args...)
	clear(args)
	g.w.args = args
	return err
}

// stmt returns a prepared statement bound to the transaction.
func (g *group) stmt(id int) *sql.Stmt {
	if g.stmts[id] == nil {
		g.stmts[id] = g.tx.Stmt(g.w.stmts[id])
	}
	return g.stmts[id]
}

// exec runs a statement without a deadline: a cancellable context costs a goroutine per
// statement, and every lock wait is bounded already.
func (g *group) exec(id int, args ...any) (int64, error) {
	res, err := g.stmt(id).ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (g *group) queryRow(id int, args ...any) *sql.Row {
	return g.stmt(id).QueryRowContext(context.Background(), args...)
}
