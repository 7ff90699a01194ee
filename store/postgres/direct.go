package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// oneCall are the statements about one call, in one table.
type oneCall struct {
	get, marks, claim, claimKey, has, state, subject string
	move, rename, renew, cancel, progress, fetched   string
}

// A statement about one call costs PostgreSQL more through the partitioned table: with 16 filled partitions
// it makes a new plan each time, since only then it leaves 15 of them out (measured: 99 µs of CPU for a SELECT, not
// 21; 139 for an UPDATE, not 48). So calls are reached directly in the partitions of around now, and all
// others through the table. Inserting many rows costs the same either way.
var throughTable = oneCallIn(partedCalls.table)

func oneCallIn(table string) *oneCall {
	in := strings.NewReplacer("UPDATE invocations ", "UPDATE "+table+" ", "FROM invocations ", "FROM "+table+" ",
		"INSERT INTO invocations ", "INSERT INTO "+table+" ").Replace
	return &oneCall{in(sqlGet), in(sqlMarks), in(sqlClaim), in(sqlClaimKey), in(sqlHasCall), in(sqlState), in(sqlSubject),
		in(sqlMove), in(sqlRename), in(sqlRenew), in(sqlCancel), in(sqlProgress), in(sqlFetched)}
}

// direct is a partition in which calls are reached directly.
type direct struct {
	partition
	*oneCall
}

// callsIn returns the statements for the call with an id.
func (s *Store) callsIn(id string) *oneCall {
	if list := s.direct.Load(); list != nil {
		id := text(id)
		for _, d := range *list {
			if id >= d.low && (d.high == "" || id < d.high) {
				return d.oneCall
			}
		}
	}
	return throughTable
}

// learnDirect learns the partitions of the periods before, of and after now; also those that
// are never dropped, but for the default one, from which rows move. One that another node drops is
// forgotten when a statement fails: see dropped.
func (s *Store) learnDirect(ctx context.Context) error {
	periods, first, err := partedCalls.list(ctx, s.pool)
	if err != nil {
		return err
	}
	now := s.cfg.Clock()
	next := slices.IndexFunc(periods, func(p partition) bool { return p.end.After(now) })
	if next < 0 {
		next = len(periods)
	}
	periods = periods[max(next-1, 0):min(next+2, len(periods))]
	if first.name != "" { // an operator may have dropped it, or the one of high ids
		periods = append(periods, first)
	}
	var high bool
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_inherits
		WHERE inhparent = 'invocations'::regclass AND inhrelid = to_regclass('invocations_high'))`).Scan(&high)
	if err != nil {
		return err
	}
	if high {
		periods = append(periods, partition{name: "invocations_high", low: highIDs})
	}
	list := make([]direct, len(periods))
	for i, p := range periods {
		list[i] = direct{p, oneCallIn(p.name)}
	}
	s.direct.Store(&list)
	return nil
}

func (g *group) on(ref toolkeep.CallRef) *oneCall { return g.w.s.callsIn(ref.ID) }

// dropped reports whether a statement failed because its partition was dropped. Tried again, it
// goes through the table.
func (s *Store) dropped(err error) bool {
	if code(err) != undefinedTable {
		return false
	}
	s.direct.Store(nil)
	return true
}
