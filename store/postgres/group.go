package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
	"github.com/toolkeep/toolkeep/store/record"
)

const (
	// Limits of one insert statement: rows and bytes of data.
	insertRows  = 2000
	insertBytes = 16 << 20

	channel = "toolkeep_feed"
)

// group is one transaction of the writer.
type group struct {
	w    *writer
	reqs []*request
	errs []error   // each request's own error
	at   time.Time // the clock's time
	// careful runs every request inside a savepoint, after one of them broke the
	// transaction.
	careful bool
	// apart is set while a request is inside a savepoint.
	apart bool

	tx      pgx.Tx
	stamp   time.Time // at in the feed's format
	current *request
	rows    []record.Encoded // feed rows of the Applies that have succeeded so far
	calls   []record.Encoded // recorded calls without a row yet
	events  []record.Encoded // likewise events
	entries []entry          // of the journal, of the Applies that have succeeded so far
	last    int64            // number of the last entry that this group may write
	changed bool             // something was written
	taken   int64            // recorded calls of the last statement whose ids are taken
	sent    bool             // COMMIT has been sent
	head    int64            // number of the last row; 0 while unknown
	seen    int64            // the feed's position before this group
}

// entry is an entry of the journal with its approximate size.
type entry struct {
	toolkeep.Entry
	cost int32
}

// reset prepares another attempt, and numbers the entries: a request that fails leaves gaps.
func (g *group) reset() {
	clear(g.errs)
	*g = group{w: g.w, reqs: g.reqs, errs: g.errs, at: g.at, careful: g.careful,
		stamp: record.FromMicros(record.Micros(g.at)), rows: g.rows[:0], calls: g.calls[:0], events: g.events[:0], entries: g.entries[:0],
		last: g.w.entry}
	g.w.chain.Undo(0)
	for _, r := range g.reqs {
		for i := range r.Steps {
			if st := &r.Steps[i]; st.InJournal() {
				g.last++
				st.Entry.Writer, st.Entry.Seq, st.Entry.At = g.w.s.journal, g.last, g.stamp
				st.linked = false
			}
		}
	}
}

// run executes all requests and commits. The error is the whole group's.
func (g *group) run(ctx context.Context) (err error) {
	if g.plain() {
		for _, r := range g.reqs {
			for i := range r.Steps {
				g.link(&r.Steps[i])
				g.emit(&r.Steps[i])
			}
		}
		return g.finish(ctx, g.w.conn, false)
	}
	if g.tx, err = g.w.conn.Begin(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = g.tx.Rollback(ctx) // the original error matters
		}
	}()
	for i := 0; i < len(g.reqs); {
		n, err := g.together(ctx, g.reqs[i:], g.errs[i:])
		if err != nil {
			return err
		}
		if i += n; n != 0 {
			continue
		}
		if g.errs[i], err = g.request(ctx, g.reqs[i]); err != nil {
			return err
		}
		i++
	}
	if !g.changed {
		return g.tx.Rollback(ctx)
	}
	return g.finish(ctx, g.tx, true)
}

// plain reports whether the group consists only of events and finished calls.
func (g *group) plain() bool {
	for _, r := range g.reqs {
		if !r.Plain || g.careful {
			return false
		}
	}
	return true
}

// request executes one request. failed is its own error; broken means that the
// transaction is lost.
func (g *group) request(ctx context.Context, r *request) (failed, broken error) {
	g.current = r
	if r.Plain && !g.careful {
		for i := range r.Steps {
			g.link(&r.Steps[i])
			g.emit(&r.Steps[i])
		}
		return nil, nil
	}
	if err := g.writeCalls(ctx); err != nil {
		return nil, err
	}
	// A single change knows whether it will succeed before it writes, so a failed one
	// leaves nothing behind.
	if len(r.Steps) == 1 && !r.Steps[0].foreign && !g.careful {
		mark := g.w.chain.Mark()
		failed = g.steps(ctx, r)
		if g.breaks(ctx, failed) {
			return nil, failed
		}
		if failed != nil {
			g.w.chain.Undo(mark)
		}
		return failed, nil
	}
	return g.isolated(ctx, r)
}

// together executes the single-statement requests at the front of the queue in one
// message: a lone claim or move costs more in waiting for the response than in work. A
// statement that changed no row is executed the long way afterwards. n is the number of
// requests executed; errs are their own errors.
//
// The order of the requests is observably kept: no two of them concern the same call,
// and claims of one key keep their order.
func (g *group) together(ctx context.Context, reqs []*request, errs []error) (n int, err error) {
	if g.careful {
		return 0, nil
	}
	b := &pgx.Batch{}
	done := make([]int64, 0, len(reqs)) // affected rows of each request's statement
	ids := make(map[toolkeep.CallRef]bool, len(reqs))
	bytes := 0
	for _, r := range reqs {
		if r.Plain {
			for i := range r.Steps {
				g.link(&r.Steps[i])
				g.write(&r.Steps[i])
			}
			done = append(done, 0)
			continue
		}
		st := &r.Steps[0]
		if len(r.Steps) != 1 || st.first == nil || ids[st.Call.Ref()] {
			break
		}
		if bytes += len(st.CallData) + len(st.Call.SealedArgs) + len(st.Call.Output); bytes > insertBytes && len(ids) != 0 {
			break
		}
		ids[st.Call.Ref()] = true
		g.queueCalls(b) // later statements may look for them
		g.link(st)
		query, args := st.first(g, st)
		at := len(done)
		done = append(done, 0)
		b.Queue(query, args...).Exec(func(tag pgconn.CommandTag) error {
			done[at] = tag.RowsAffected()
			return nil
		})
	}
	if b.Len() != 0 {
		if err := g.tx.SendBatch(ctx, b).Close(); err != nil {
			return 0, err
		}
	}
	for i := range done {
		r := reqs[i]
		g.current = r
		if r.Plain || done[i] != 0 {
			for j := range r.Steps {
				g.note(&r.Steps[j])
			}
			continue
		}
		if errs[i] = g.steps(ctx, r); g.breaks(ctx, errs[i]) {
			return 0, errs[i]
		}
		if errs[i] != nil && r.Steps[0].InJournal() {
			return 0, errChain
		}
	}
	return len(done), nil
}

// breaks reports whether an error makes the transaction unusable, unlike outcomes of
// the store and errors of the queue.
func (g *group) breaks(ctx context.Context, err error) bool {
	return err != nil && (code(err) != "" || g.w.conn.IsClosed() || ctx.Err() != nil)
}

// steps executes a request's changes up to the first that fails.
func (g *group) steps(ctx context.Context, r *request) error {
	for i := range r.Steps {
		st := &r.Steps[i]
		changed := true
		mark := g.w.chain.Mark()
		g.link(st)
		if st.act != nil {
			if err := g.writeCalls(ctx); err != nil {
				return err
			}
			var err error
			if changed, err = st.act(ctx, g, st); err != nil {
				return err
			}
			changed = changed || st.foreign
		}
		if changed {
			g.emit(st)
		}
		if !g.careful && !g.apart {
			continue
		}
		if err := g.writeCalls(ctx); err != nil {
			return err
		}
		if g.taken != 0 {
			g.w.chain.Undo(mark)
			g.taken = 0
		}
	}
	return nil
}

// isolated executes one request inside a savepoint.
func (g *group) isolated(ctx context.Context, r *request) (failed, broken error) {
	if _, err := g.tx.Exec(ctx, "SAVEPOINT one"); err != nil {
		return nil, err
	}
	rows, entries, changed, mark := len(g.rows), len(g.entries), g.changed, g.w.chain.Mark()
	g.apart = true
	failed = g.steps(ctx, r)
	g.apart = false
	if failed == nil {
		_, broken = g.tx.Exec(ctx, "RELEASE SAVEPOINT one")
		return nil, broken
	}
	if g.breaks(ctx, failed) && !isOwn(failed) {
		return nil, failed // a deadlock or a server shutdown: not this request's fault
	}
	g.w.chain.Undo(mark)
	clear(g.rows[rows:])
	g.rows, g.entries, g.calls, g.events, g.changed = g.rows[:rows], g.entries[:entries], g.calls[:0], g.events[:0], changed
	if _, err := g.tx.Exec(ctx, "ROLLBACK TO SAVEPOINT one"); err != nil {
		return nil, errors.Join(failed, err)
	}
	_, broken = g.tx.Exec(ctx, "RELEASE SAVEPOINT one")
	return failed, broken
}

// errChain means that an entry failed after the hashes of later ones had covered it.
var errChain = errors.New("an entry of the journal was not written, and the ones after it must be chained again")

// link gives an entry its hash. Entries are linked in the order of their numbers; one that
// fails is undone before the next.
func (g *group) link(st *step) {
	if !st.InJournal() || st.linked {
		return
	}
	e, at := &st.Encoded, int64(0)
	if st.Entry.Event != nil {
		at = record.Micros(g.at)
	}
	st.linked, e.Hash = true, g.w.chain.Next(e, st.Entry.Seq, at)
}

// emit adds a change that succeeded.
func (g *group) emit(st *step) {
	g.write(st)
	g.note(st)
}

// write adds the row of a recorded call or an event, which is written later.
func (g *group) write(st *step) {
	switch {
	case st.Kind == record.KindRecord:
		g.calls = append(g.calls, st.Encoded)
	case st.Entry.Event != nil:
		g.events = append(g.events, st.Encoded)
	}
}

// note adds what feed and journal tell of a change.
func (g *group) note(st *step) {
	g.changed = true
	switch {
	case st.InJournal():
		g.entries = append(g.entries, entry{st.Entry, int32(len(st.Data) + flow.RowCost)})
	case st.Kind != 0:
		g.rows = append(g.rows, st.Encoded)
	}
}

// writeCalls inserts the rows of recorded calls before a statement may look for them, and
// events with them.
func (g *group) writeCalls(ctx context.Context) error {
	if len(g.calls)+len(g.events) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	g.queueCalls(b)
	return g.tx.SendBatch(ctx, b).Close()
}

type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// finish sends the rest in one message: the writer's number, recorded calls and events;
// if there are feed rows, the feed position, the rows and the notification; and COMMIT if a
// transaction was begun (a message without one is its own transaction).
func (g *group) finish(ctx context.Context, to sender, begun bool) error {
	b := &pgx.Batch{}
	var head, seen int64
	b.Queue(sqlFence, text(g.w.name), g.w.number, g.last).QueryRow(func(row pgx.Row) error { return row.Scan(nil, &seen) })
	g.queueCalls(b)
	if n := len(g.rows); n != 0 {
		b.Queue(sqlHead, n).QueryRow(func(row pgx.Row) error { return row.Scan(&head) })
		g.queueFeed(b)
		b.Queue(sqlNotify, channel)
	}
	if begun {
		b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
			if tag.String() != "COMMIT" {
				return errRolledBack
			}
			return nil
		})
	}
	g.sent = true
	if err := to.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	g.head, g.seen = head, seen
	return nil
}

var errRolledBack = errors.New("the transaction was rolled back")

// queueFeed adds the feed rows. Their numbers end at the current value of feed_head.
func (g *group) queueFeed(b *pgx.Batch) {
	at := record.Micros(g.at)
	for from := 0; from < len(g.rows); {
		to := chunk(g.rows, from)
		rows := g.rows[from:to]
		kinds, tenants, refs, data := make([]int64, len(rows)), make([]string, len(rows)), make([]string, len(rows)), make([][]byte, len(rows))
		for i, r := range rows {
			kinds[i], tenants[i], refs[i], data[i] = r.Kind, text(r.Tenant), text(r.Ref), r.Data
		}
		// The number of the group's rows from this statement's first on.
		b.Queue(sqlFeed, int64(len(g.rows)-from), at, kinds, tenants, refs, data)
		from = to
	}
}

// queueCalls adds the rows of recorded calls and of events. A call whose id is taken breaks the group, and is lost
// when that is tried again carefully: it was recorded before, or has the id of another.
func (g *group) queueCalls(b *pgx.Batch) {
	for from := 0; from < len(g.calls); {
		to := chunk(g.calls, from)
		rows := g.calls[from:to]
		var columns [7][]string
		created, data, numbers, hashes := make([]int64, len(rows)), make([][]byte, len(rows)), make([]int64, len(rows)), hashesOf(rows)
		for i, r := range rows {
			v := r.Call
			for j, s := range [...]string{v.Tenant, v.ID, v.Subject, v.ToolID, v.Session, v.Parent, string(v.State)} {
				columns[j] = append(columns[j], text(s))
			}
			created[i], data[i], numbers[i] = record.Nanos(v.CreatedAt), r.CallData, r.Entry.Seq
		}
		n, log, query := int64(len(rows)), g.w.s.cfg.Log, sqlRecord
		if g.careful || g.apart {
			query = sqlRecordNew
		}
		b.Queue(query, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], columns[6], created, data, numbers, hashes, g.w.s.journal).
			Exec(func(tag pgconn.CommandTag) error {
				if g.taken = n - tag.RowsAffected(); g.taken != 0 {
					log.Error("recorded calls have ids that are taken; they stay as they were recorded first", "calls", g.taken)
				}
				return nil
			})
		from = to
	}
	for from := 0; from < len(g.events); {
		to := chunk(g.events, from)
		rows := g.events[from:to]
		tenants, ids, data, numbers, hashes := make([]string, len(rows)), make([]string, len(rows)), make([][]byte, len(rows)), make([]int64, len(rows)), hashesOf(rows)
		for i, r := range rows {
			tenants[i], ids[i], data[i], numbers[i] = text(r.Tenant), text(r.Ref), r.Data, r.Entry.Seq
		}
		b.Queue(sqlEvent, g.w.s.journal, record.Micros(g.at), numbers, tenants, ids, data, hashes)
		from = to
	}
	g.calls, g.events = g.calls[:0], g.events[:0]
}

// hashesOf copies the hashes of rows, whose memory is used again before they are sent.
func hashesOf(rows []record.Encoded) [][]byte {
	all, list := make([]byte, 0, len(rows)*len(toolkeep.ChainHash{})), make([][]byte, len(rows))
	for i := range rows {
		all = append(all, rows[i].Hash[:]...)
		list[i] = all[len(all)-len(rows[i].Hash):]
	}
	return list
}

// chunk returns the end of the rows for one statement.
func chunk(rows []record.Encoded, from int) int {
	bytes := 0
	for i := from; i < len(rows); i++ {
		bytes += len(rows[i].Data)
		if i > from && (bytes > insertBytes || i-from == insertRows) {
			return i
		}
	}
	return len(rows)
}

func (g *group) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := g.tx.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

// enqueue calls the queue. A panic there must not end the writer.
func (g *group) enqueue(ctx context.Context, c toolkeep.Enqueue) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("postgres: the queue panicked: %v", p)
		}
	}()
	if err := g.w.s.cfg.Enqueue(ctx, g.tx, c); err != nil {
		return fmt.Errorf("enqueue %s: %w", c.Call.ID, err)
	}
	return nil
}
