package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep/store/record"
)

// parted is a table that is partitioned by time. It has a partition NAME_first with all that was
// there before the partitions, one NAME_YYYYMMDD for each period, by its start, and a default
// one, NAME_other, for what fits nowhere else. Calls, whose key is the id, have one more,
// NAME_high, for ids that are none of time.
type parted struct {
	table, key string
	with       string // storage parameters of a partition
	// bound writes a time as a value of the key, and when reads it.
	bound func(time.Time) string
	when  func(string) (time.Time, error)
	last  time.Time // the last time that bound can write; zero: there is none
}

const (
	day = 24 * time.Hour
	// highIDs is where the ids begin that are none of time.
	highIDs = "02"
)

var (
	partedCalls = parted{table: "invocations", key: "id", with: " WITH (fillfactor = 90)", bound: idBound, when: idTime,
		last: time.UnixMilli(0x020000000000)}
	partedEvents = parted{table: "events", key: "at",
		bound: func(t time.Time) string { return strconv.FormatInt(record.Micros(t), 10) },
		when: func(s string) (time.Time, error) {
			n, err := strconv.ParseInt(s, 10, 64)
			return record.FromMicros(n), err
		}}
)

// idBound returns the lowest id of a time: the start of a UUID of version 7.
func idBound(t time.Time) string {
	ms := t.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7", ms>>16, ms&0xffff)
}

func idTime(bound string) (time.Time, error) {
	hex, is7 := strings.CutSuffix(strings.Replace(bound, "-", "", 1), "-7")
	ms, err := strconv.ParseInt(hex, 16, 64)
	if err == nil && (!is7 || len(hex) != 12) {
		err = fmt.Errorf("%q is not the start of a UUID of version 7", bound)
	}
	return time.UnixMilli(ms).UTC(), err
}

// period returns how much time a new partition covers: a day, or more if rows stay long, so that
// there are at most some 30 partitions. A statement that needs all of them locks each with its indexes.
func period(keep time.Duration) time.Duration {
	switch {
	case keep < 28*day:
		return day
	case keep < 182*day:
		return 7 * day
	}
	return max(4, (keep+30*7*day-1)/(30*7*day)) * 7 * day
}

// partition is one of a period. Its bounds never change.
type partition struct {
	name      string
	low, high string // of the key; low is in it, high is not
	start     time.Time
	end       time.Time
}

func (p *parted) between(start, end time.Time) partition {
	return partition{name: p.table + start.Format("_20060102"), low: p.bound(start), high: p.bound(end), start: start, end: end}
}

// list returns the partitions of periods, the oldest first, and the one before all of them.
func (p *parted) list(ctx context.Context, conn querier) (periods []partition, first partition, err error) {
	rows, err := conn.Query(ctx, `SELECT c.relname, coalesce(substring(b FROM 'FROM \(''([^'']+)''\)'), ''), substring(b FROM 'TO \(''([^'']+)''\)')
		FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid, pg_get_expr(c.relpartbound, c.oid) AS b
		WHERE i.inhparent = $1::text::regclass AND c.relname NOT LIKE '%\_other' AND c.relname NOT LIKE '%\_high' ORDER BY c.relname`, p.table)
	if err != nil {
		return nil, first, err
	}
	var part partition
	_, err = pgx.ForEachRow(rows, []any{&part.name, &part.low, &part.high}, func() error {
		if part.end, err = p.when(part.high); err != nil {
			return fmt.Errorf("read the end of partition %s: %w", part.name, err)
		}
		if part.name == p.table+"_first" {
			first, first.start = part, time.Time{}
		} else {
			if part.start, err = p.when(part.low); err != nil {
				return fmt.Errorf("read the start of partition %s: %w", part.name, err)
			}
			periods = append(periods, part)
		}
		return nil
	})
	return periods, first, err
}

// ahead is how many periods after the current one have a partition.
const ahead = 2

// missing returns the partitions to make, so that the current period and the next ones are covered, whatever
// there is: made is sorted by time and does not overlap.
func (p *parted) missing(now time.Time, made []partition, period time.Duration) (parts []partition) {
	next := func(t time.Time) time.Time { return t.Truncate(period).Add(period) }
	from := now.UTC().Truncate(period)
	stop := from.Add((ahead + 1) * period)
	for {
		to := next(from)
		for _, m := range made {
			switch {
			case !m.end.After(from):
			case !m.start.After(from):
				from, to = m.end, next(m.end)
			case m.start.Before(to):
				to = m.start
			}
		}
		if !from.Before(stop) || !p.last.IsZero() && to.After(p.last) {
			return parts
		}
		parts = append(parts, p.between(from, to))
		from = to
	}
}

// lockWait bounds how long a change of the partitions waits for its locks: whatever comes
// meanwhile waits behind it. It is tried again in the next pass.
const lockWait = `SET LOCAL lock_timeout = '200ms'`

// The default partition is scanned, and rows of the new one leave it, while new rows for it wait. Beyond
// these bounds no partition is made.
const (
	otherBytes = 512 << 20
	otherRows  = 10_000 // to be moved
)

// makeAhead makes the partitions that the current period and the next ones need. What fails is in the error and does not
// stop the others.
func (s *Store) makeAhead(ctx context.Context) error {
	var errs []error
	for _, p := range []struct {
		*parted
		keep time.Duration
	}{{&partedCalls, s.cfg.InvocationKeep}, {&partedEvents, s.cfg.EventKeep}} {
		parts, err := s.missing(ctx, s.pool, p.parted, p.keep)
		if err != nil {
			errs = append(errs, fmt.Errorf("read the partitions of %s: %w", p.table, err))
		}
		for _, part := range parts {
			err := s.makeOne(ctx, p.parted, p.keep, part)
			if code(err) == lockNotAvailable {
				s.cfg.Log.Warn("a partition was not made, since its table is in use; the next pass tries again", "table", p.table, "partition", part.name)
			} else if err != nil {
				errs = append(errs, fmt.Errorf("make partition %s: %w", part.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// tryAhead is makeAhead where nothing depends on it: rows without a partition of theirs are right in the default one.
func (s *Store) tryAhead(ctx context.Context) {
	if err := s.makeAhead(ctx); err != nil && !s.closed() {
		s.cfg.Log.Error("partitions could not be made, so their rows go to the default ones; the next pass tries again", "error", err)
	}
}

// missing returns the partitions to make. The time is PostgreSQL's, since that of one node may be wrong.
func (s *Store) missing(ctx context.Context, conn querier, p *parted, keep time.Duration) ([]partition, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeout)
	defer cancel()
	var now time.Time
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return nil, err
	}
	now = s.cfg.Clock().Add(now.Sub(s.cfg.machine()))
	periods, first, err := p.list(ctx, conn)
	if err != nil {
		return nil, err
	}
	return p.missing(now, append([]partition{first}, periods...), period(keep)), nil
}

// makeOne makes a partition, unless too much is in the default one.
func (s *Store) makeOne(ctx context.Context, p *parted, keep time.Duration, part partition) error {
	full, err := s.isFull(ctx, p, part)
	if err != nil {
		return err
	}
	if full {
		if _, told := s.full.LoadOrStore(part.name, true); !told {
			s.cfg.Log.Warn("a partition is not made, since too much is in the default one: to scan it or to move its rows would stop calls for long. "+
				"Calls go on; to make the partition, stop all nodes and run the statements",
				"table", p.table+"_other", "partition", part.name, "statements", "BEGIN; "+strings.Join(p.making(part), "; ")+"; COMMIT")
		}
		return nil
	}
	_, err = s.alone(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		parts, err := s.missing(ctx, tx, p, keep)
		if err != nil || !slices.ContainsFunc(parts, func(m partition) bool { return m.low == part.low && m.high == part.high }) {
			return false, err // another node made it
		}
		return false, p.make(ctx, tx, part.start, part.end)
	})
	return err
}

// isFull reports whether the default partition is too large to be scanned, or has too many rows of part.
func (s *Store) isFull(ctx context.Context, p *parted, part partition) (full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, fmt.Sprintf(`SELECT pg_relation_size('%s_other') > $1`, p.table), s.cfg.otherBytes).Scan(&full)
	if err != nil || full {
		return full, err
	}
	err = s.pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) > $1 FROM (SELECT FROM %s_other WHERE %[2]s >= '%[3]s' AND %[2]s < '%[4]s' LIMIT $1 + 1) AS rows`,
		p.table, p.key, part.low, part.high), int64(otherRows)).Scan(&full)
	return full, err
}

func (p *parted) make(ctx context.Context, tx pgx.Tx, from, to time.Time) error {
	for _, query := range append([]string{lockWait}, p.making(p.between(from, to))...) {
		if _, err := tx.Exec(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// making returns the statements that make a partition in one transaction. Rows of its range that are in the default
// one, such as those with ids of the future, move to it.
func (p *parted) making(part partition) []string {
	return []string{
		fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)%s`, part.name, p.table, p.with),
		fmt.Sprintf(`LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE`, p.table),
		fmt.Sprintf(`LOCK TABLE %s_other IN ACCESS EXCLUSIVE MODE`, p.table),
		fmt.Sprintf(`WITH gone AS (DELETE FROM %s_other WHERE %[2]s >= '%[3]s' AND %[2]s < '%[4]s' RETURNING *) INSERT INTO %[5]s SELECT * FROM gone`,
			p.table, p.key, part.low, part.high, part.name),
		fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`, p.table, part.name, part.low, part.high),
	}
}

// dropCalls drops the partitions of calls of before cutoff, without those that are held or not archived, and those in which a
// call has not ended, or is younger than its id. It returns the names of the partitions from which rows must
// be deleted.
func (s *Store) dropCalls(ctx context.Context, cutoff time.Time, holds held, floors string) (rest []string, err error) {
	parts, _, err := partedCalls.list(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	old, current := over(parts, cutoff, s.cfg.InvocationKeep)
	rest = append([]string{"invocations_first", "invocations_high", "invocations_other"}, current...)
	for _, part := range old {
		if holds.part(&partedCalls, part) {
			continue
		}
		stays, err := s.isBusy(ctx, part.name, cutoff)
		waits, has := false, false
		if err == nil {
			has, err = s.hasHeld(ctx, part.name, holds)
		}
		if err == nil && !has {
			waits, err = s.callsWait(ctx, part, floors, cutoff.Add(-s.cfg.ArchiveWait))
		}
		switch {
		case err != nil:
			s.notDropped(part.name, err)
		case stays:
			rest = append(rest, part.name)
		case waits, has:
		default:
			s.drop(ctx, &partedCalls, part.name, holds, func(ctx context.Context, tx pgx.Tx) (stays bool, err error) {
				// Of what was written since, only a new call can be in the way. The BRIN index finds it without a scan, as
				// isBusy had it summarised.
				if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off`); err != nil {
					return true, err
				}
				err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+part.name+` WHERE created >= $1)`, record.Nanos(cutoff)).Scan(&stays)
				if stays || err != nil {
					return stays, err
				}
				return holds.row(ctx, tx, part.name)
			})
		}
	}
	return rest, nil
}

// hasHeld is held.row, before anything is locked.
func (s *Store) hasHeld(ctx context.Context, name string, holds held) (has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	has, err = holds.row(ctx, s.pool, name)
	if code(err) == undefinedTable { // another node dropped it
		return true, nil
	}
	return has, err
}

// scanTime bounds the scan of a whole partition.
const scanTime = 10 * time.Minute

// isBusy reports whether a partition of calls has one that must stay: one that has not ended, or is younger than cutoff.
// It asks for each kind by itself, for which there is an index, and holds no lock that a statement of a call waits for. It is
// asked in each pass while a call stays.
func (s *Store) isBusy(ctx context.Context, name string, cutoff time.Time) (busy bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	// Blocks that the BRIN index does not cover yet would be scanned, also later under the lock of the drop.
	_, err = s.pool.Exec(ctx, `SELECT brin_summarize_new_values(x.indexrelid) FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
		JOIN pg_am AS a ON a.oid = i.relam WHERE x.indrelid = to_regclass($1::text) AND i.relkind = 'i' AND a.amname = 'brin'`, name)
	if err != nil {
		return false, err
	}
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+name+` WHERE state = 'running') OR EXISTS (SELECT FROM `+name+` WHERE state = 'queued')
		OR EXISTS (SELECT FROM `+name+` WHERE state IN ('accepted', 'pending_approval', 'input_required') AND `+troubleWhere+`)
		OR EXISTS (SELECT FROM `+name+` WHERE created >= $1)`, record.Nanos(cutoff)).Scan(&busy)
	if code(err) == undefinedTable { // another node dropped it
		return true, nil
	}
	return busy, err
}

// dropEvents drops the partitions of events of before cutoff that are not held and are archived, and returns the names of those from
// which rows must be deleted.
func (s *Store) dropEvents(ctx context.Context, cutoff time.Time, holds held) (rest []string, err error) {
	parts, _, err := partedEvents.list(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	old, current := over(parts, cutoff, s.cfg.EventKeep)
	for _, part := range old {
		if holds.part(&partedEvents, part) {
			continue
		}
		switch waits, err := s.waits(ctx, part, cutoff); {
		case err != nil:
			s.notDropped(part.name, err)
		case !waits:
			s.drop(ctx, &partedEvents, part.name, holds, func(context.Context, pgx.Tx) (bool, error) { return false, nil })
		}
	}
	return append([]string{"events_first", "events_other"}, current...), nil
}

// shortKeep: what stays for less does not stay for another period, either.
const shortKeep = 7 * day

// over returns the partitions of periods that ended before cutoff, and the one in which cutoff is if rows
// must be deleted from it.
func over(parts []partition, cutoff time.Time, keep time.Duration) (old []partition, current []string) {
	for i, part := range parts {
		if !part.end.After(cutoff) {
			continue
		}
		if keep < shortKeep {
			current = []string{part.name}
		}
		return parts[:i], current
	}
	return parts, nil
}

// drop drops a partition, unless the holds are others than holds, stays says otherwise once nothing can be written any more, or
// the locks are not free in time. A failure is logged, so that the others go on.
func (s *Store) drop(ctx context.Context, p *parted, name string, holds held, stays func(context.Context, pgx.Tx) (bool, error)) {
	if same, err := s.standAs(ctx, holds); !same || err != nil {
		if err != nil {
			s.notDropped(name, err)
		}
		return
	}
	_, err := s.alone(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		for _, query := range []string{
			lockWait,
			fmt.Sprintf(`LOCK TABLE ONLY %s, ONLY %s IN ACCESS EXCLUSIVE MODE`, p.table, name),
		} {
			if _, err := tx.Exec(ctx, query); err != nil {
				return false, err
			}
		}
		if stay, err := stays(ctx, tx); stay || err != nil {
			return false, err
		}
		_, err := tx.Exec(ctx, `DROP TABLE `+name)
		return false, err
	})
	if err != nil {
		s.notDropped(name, err)
	}
}

// notDropped logs why a partition stays.
func (s *Store) notDropped(name string, err error) {
	switch {
	case s.closed() || code(err) == undefinedTable: // another node dropped it
	case code(err) == lockNotAvailable:
		s.cfg.Log.Warn("an old partition was not dropped, since it is in use; the next pass tries again", "partition", name)
	default:
		s.cfg.Log.Error("an old partition could not be dropped; the next pass tries again", "partition", name, "error", err)
	}
}
