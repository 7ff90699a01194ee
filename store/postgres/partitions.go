package postgres

import (
	"context"
	"fmt"
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
	return 28 * day
}

// partition is one of a period. Its bounds never change.
type partition struct {
	name      string
	low, high string // of the key; low is in it, high is not
	end       time.Time
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
			first = part
		} else {
			periods = append(periods, part)
		}
		return nil
	})
	return periods, first, err
}

// ahead is how many periods after the current one have a partition.
const ahead = 2

// missing returns the bounds of the partitions to make after end; with one bound, there is none. What was written
// while nobody made any is in the default partition and stays there: the next one
// starts in the future, so that few rows or none must be moved.
func (p *parted) missing(now, end time.Time, period time.Duration) (bounds []time.Time) {
	if !end.After(now) {
		end = now.Truncate(period).Add(period)
	}
	bounds = append(bounds, end)
	for !end.After(now.Add(ahead * period)) {
		end = end.Truncate(period).Add(period)
		if !p.last.IsZero() && end.After(p.last) {
			break
		}
		bounds = append(bounds, end)
	}
	return bounds
}

// lockWait bounds how long a change of the partitions waits for its locks: whatever comes
// meanwhile waits behind it. It is tried again in the next pass.
const lockWait = `SET LOCAL lock_timeout = '200ms'`

// makeAhead makes the partitions that the current time and the next periods need.
func (s *Store) makeAhead(ctx context.Context) error {
	for _, p := range []struct {
		*parted
		keep time.Duration
	}{{&partedCalls, s.cfg.InvocationKeep}, {&partedEvents, s.cfg.EventKeep}} {
		for more := true; more; {
			var err error
			more, err = s.alone(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) {
				periods, last, err := p.list(ctx, tx)
				if err != nil {
					return false, err
				}
				if n := len(periods); n != 0 {
					last = periods[n-1]
				}
				bounds := p.missing(s.cfg.Clock().UTC(), last.end, period(p.keep))
				if len(bounds) < 2 {
					return false, nil
				}
				return true, p.make(ctx, tx, bounds[0], bounds[1])
			})
			if err != nil && code(err) != lockNotAvailable {
				return fmt.Errorf("make a partition of %s: %w", p.table, err)
			}
		}
	}
	return nil
}

// make makes a partition. Rows of its range that are in the default one, such as those with ids
// of the future, move to it.
func (p *parted) make(ctx context.Context, tx pgx.Tx, from, to time.Time) error {
	name, low, high := p.table+from.Format("_20060102"), p.bound(from), p.bound(to)
	for _, query := range []string{
		lockWait,
		fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)%s`, name, p.table, p.with),
		fmt.Sprintf(`LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE`, p.table),
		fmt.Sprintf(`LOCK TABLE %s_other IN ACCESS EXCLUSIVE MODE`, p.table),
		fmt.Sprintf(`WITH gone AS (DELETE FROM %s_other WHERE %[2]s >= '%[3]s' AND %[2]s < '%[4]s' RETURNING *) INSERT INTO %[5]s SELECT * FROM gone`,
			p.table, p.key, low, high, name),
		fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`, p.table, name, low, high),
	} {
		if _, err := tx.Exec(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// dropCalls drops the partitions of calls of before cutoff, without those in which a call has not
// ended, or is younger than its id. It returns the names of the partitions from which rows must
// be deleted.
func (s *Store) dropCalls(ctx context.Context, cutoff time.Time) (rest []string, err error) {
	parts, _, err := partedCalls.list(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	old, current := over(parts, cutoff, s.cfg.InvocationKeep)
	rest = append([]string{"invocations_first", "invocations_high", "invocations_other"}, current...)
	for _, part := range old {
		stays, err := s.isBusy(ctx, part.name, cutoff)
		if err != nil {
			return nil, err
		}
		if stays {
			rest = append(rest, part.name)
			continue
		}
		if err := s.drop(ctx, &partedCalls, part.name, func(ctx context.Context, tx pgx.Tx) (stays bool, err error) {
			// Of what was written since, only a new call can be in the way. The index finds it without a scan.
			if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = off`); err != nil {
				return true, err
			}
			err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+part.name+` WHERE created >= $1)`, record.Nanos(cutoff)).Scan(&stays)
			return stays, err
		}); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// scanTime bounds the scan of a whole partition.
const scanTime = 10 * time.Minute

// isBusy reports whether a partition of calls has one that must stay: one that has not ended, or is younger than cutoff.
// It asks for each kind by itself, for which there is an index, and holds no lock that a statement of a call waits for.
func (s *Store) isBusy(ctx context.Context, name string, cutoff time.Time) (busy bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+name+` WHERE state = 'running') OR EXISTS (SELECT FROM `+name+` WHERE state = 'queued')
		OR EXISTS (SELECT FROM `+name+` WHERE state IN ('accepted', 'pending_approval', 'input_required') AND `+troubleWhere+`)
		OR EXISTS (SELECT FROM `+name+` WHERE created >= $1)`, record.Nanos(cutoff)).Scan(&busy)
	if code(err) == undefinedTable { // another node dropped it
		return true, nil
	}
	return busy, err
}

// dropEvents drops the partitions of events of before cutoff, and returns the names of those from
// which rows must be deleted.
func (s *Store) dropEvents(ctx context.Context, cutoff time.Time) (rest []string, err error) {
	parts, _, err := partedEvents.list(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	old, current := over(parts, cutoff, s.cfg.EventKeep)
	for _, part := range old {
		err := s.drop(ctx, &partedEvents, part.name, func(context.Context, pgx.Tx) (bool, error) { return false, nil })
		if err != nil {
			return nil, err
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

// drop drops a partition, unless stays says otherwise once nothing can be written any more, or
// the locks are not free in time.
func (s *Store) drop(ctx context.Context, p *parted, name string, stays func(context.Context, pgx.Tx) (bool, error)) error {
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
	switch code(err) {
	case lockNotAvailable, undefinedTable: // tried again, or another node dropped it
		return nil
	}
	if err != nil {
		return fmt.Errorf("drop partition %s: %w", name, err)
	}
	return nil
}
