package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// held are the legal holds. A partition of whose time a hold of any tenant covers a part stays whole; from partitions that
// are emptied row by row, rows of the tenant and time stay.
type held []toolkeep.LegalHold

// holds reads the legal holds.
func (s *Store) holds(ctx context.Context) (list held, err error) {
	documents, _, err := s.Documents(ctx, toolkeep.LegalHoldKind)
	for _, d := range documents {
		list = append(list, toolkeep.ReadLegalHold(d))
	}
	return list, err
}

// part reports whether a partition stays for a hold. Calls are in it by when they were made, and held by when they ended.
func (h held) part(p *parted, part partition) bool {
	end := part.end
	if p == &partedCalls {
		end = end.Add(toolkeep.LegalHoldReach)
	}
	for i := range h {
		if h[i].Covers(part.start, end) {
			return true
		}
	}
	return false
}

// not is a condition for rows that no hold covers, by a column in units since 1970; reach is how much earlier than their entry
// rows may be.
func (h held) not(column string, unit func(time.Time) int64, reach time.Duration) string {
	var b strings.Builder
	for i := range h {
		from, until := int64(math.MinInt64), int64(math.MaxInt64)
		if !h[i].From.IsZero() {
			from = unit(h[i].From.Add(-reach))
		}
		if !h[i].Until.IsZero() {
			until = unit(h[i].Until)
		}
		// The tenant's name is any text.
		fmt.Fprintf(&b, " AND NOT (tenant = convert_from(decode('%s', 'hex'), 'UTF8') AND %s >= %d AND %[2]s <= %[4]d)",
			hex.EncodeToString([]byte(text(h[i].Tenant))), column, from, until)
	}
	return b.String()
}
