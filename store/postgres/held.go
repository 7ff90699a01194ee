package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// held are the legal holds. A partition of whose time a hold of any tenant covers a part stays whole; from partitions that
// are emptied row by row, rows of the tenant and time stay.
type held struct {
	list  []toolkeep.LegalHold
	stand string // differs between others
}

// holds reads the legal holds.
func (s *Store) holds(ctx context.Context) (h held, err error) {
	documents, _, err := s.Documents(ctx, toolkeep.LegalHoldKind)
	for _, d := range documents {
		h.list = append(h.list, toolkeep.ReadLegalHold(d))
		h.stand += fmt.Sprintf("%q %q %d ", d.Tenant, d.ID, d.Revision)
	}
	return h, err
}

// standAs reports whether the holds are those that retention began its pass with. It is asked before each transaction that
// removes: a hold that was made since is observed at once, and the next pass goes on with it.
func (s *Store) standAs(ctx context.Context, h held) (bool, error) {
	now, err := s.holds(ctx)
	return err == nil && now.stand == h.stand, err
}

// row reports whether a partition of calls has a row that a hold covers: ids are of any time, so it may be one of another
// period.
func (h held) row(ctx context.Context, conn querier, name string) (has bool, err error) {
	if len(h.list) == 0 {
		return false, nil
	}
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+name+` WHERE `+h.covered("created", record.Nanos, toolkeep.LegalHoldReach)+`)`).Scan(&has)
	return has, err
}

// part reports whether a partition stays for a hold. Calls are in it by when they were made, and held by when they ended.
func (h held) part(p *parted, part partition) bool {
	end := part.end
	if p == &partedCalls {
		end = end.Add(toolkeep.LegalHoldReach)
	}
	for i := range h.list {
		if h.list[i].Covers(part.start, end) {
			return true
		}
	}
	return false
}

// not is a condition for rows that no hold covers, by a column in units since 1970; reach is how much earlier than their entry
// rows may be.
func (h held) not(column string, unit func(time.Time) int64, reach time.Duration) string {
	if len(h.list) == 0 {
		return ""
	}
	return " AND NOT (" + h.covered(column, unit, reach) + ")"
}

// covered is the condition for rows that one covers.
func (h held) covered(column string, unit func(time.Time) int64, reach time.Duration) string {
	var any []string
	for i := range h.list {
		h := &h.list[i]
		from, until := int64(math.MinInt64), int64(math.MaxInt64)
		if !h.From.IsZero() {
			from = unit(h.From.Add(-reach))
		}
		if !h.Until.IsZero() {
			until = unit(h.Until)
		}
		// The tenant's name is any text.
		any = append(any, fmt.Sprintf("(tenant = convert_from(decode('%s', 'hex'), 'UTF8') AND %s >= %d AND %[2]s <= %[4]d)",
			hex.EncodeToString([]byte(text(h.Tenant))), column, from, until))
	}
	return strings.Join(any, " OR ")
}
