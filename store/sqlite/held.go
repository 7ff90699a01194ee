package sqlite

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"math"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/record"
)

// held are the legal holds as statements of retention read them: JSON arrays of tenant, from and until, the times in the
// unit of the column.
type held struct {
	any         bool
	micros      string // of journal.at
	nanos       string // of invocations.created, earlier by toolkeep.LegalHoldReach
	fingerprint int64
}

const (
	// notHeldEntry and notHeldCall are the conditions of rows that no hold covers, with held as ?3 and ?4.
	notHeldEntry = ` AND NOT EXISTS (SELECT 1 FROM json_each(?3) AS h WHERE h.value ->> 0 = journal.tenant AND journal.at >= h.value ->> 1 AND journal.at < h.value ->> 2)`
	notHeldCall  = ` AND NOT EXISTS (SELECT 1 FROM json_each(?4) AS h WHERE h.value ->> 0 = invocations.tenant AND created >= h.value ->> 1 AND created < h.value ->> 2)`
	// holdsMark is the mark whose number is the fingerprint of the holds of the last pass.
	holdsMark = "holds"
)

// holds reads the legal holds.
func (s *Store) holds(ctx context.Context) (h held, err error) {
	documents, _, err := s.Documents(ctx, toolkeep.LegalHoldKind)
	if err != nil || len(documents) == 0 {
		return h, err
	}
	entries, calls := make([][]any, len(documents)), make([][]any, len(documents))
	for i, d := range documents {
		one := toolkeep.ReadLegalHold(d)
		from, made, until := int64(math.MinInt64), int64(math.MinInt64), int64(math.MaxInt64)
		if !one.Until.IsZero() {
			until = record.Nanos(one.Until)
		}
		if !one.From.IsZero() { // Nanos has bounds, so what is subtracted comes before it
			from, made = record.Nanos(one.From), record.Nanos(one.From.Add(-toolkeep.LegalHoldReach))
		}
		entries[i] = []any{d.Tenant, from / 1000, until/1000 + 1}
		calls[i] = []any{d.Tenant, made, until}
	}
	raw, err := json.Marshal(entries)
	if err != nil {
		return h, err
	}
	raw2, err := json.Marshal(calls)
	sum := fnv.New64a()
	sum.Write(raw)
	return held{true, string(raw), string(raw2), int64(sum.Sum64() >> 1)}, err
}

// standAs reports whether the holds are those that retention began its pass with. Each batch asks: a hold that was made since is
// observed at once, and the next pass goes on with it.
func (s *Store) standAs(ctx context.Context, h held) (bool, error) {
	now, err := s.holds(ctx)
	return err == nil && now.fingerprint == h.fingerprint, err
}

// trimAgain has retention look at all rows again if the holds are others than in the last pass: what one held lies before
// its marks.
func (s *Store) trimAgain(ctx context.Context, h held) error {
	var last int64
	err := s.read.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM marks WHERE name = ?`, holdsMark).Scan(&last)
	if err != nil || last == h.fingerprint {
		return err
	}
	return s.maintain(ctx, statement{`DELETE FROM marks WHERE name IN ('trimmed short calls', 'trimmed events')`, nil},
		statement{`INSERT INTO marks (name, seq) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq`, []any{holdsMark, h.fingerprint}})
}
