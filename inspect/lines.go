package inspect

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// parseLines parses NDJSON or JSON Lines into a list: one value per line, empty lines skipped.
func (i *Inspector) parseLines(r *result, text []byte) ([]any, error) {
	return i.parseEach(r, bytes.TrimPrefix(text, utf8BOM), '\n', "line")
}

// parseSequence parses a JSON text sequence (RFC 7464) into a list: a record separator before each value.
func (i *Inspector) parseSequence(r *result, text []byte) ([]any, error) {
	_, text, _ = bytes.Cut(text, []byte{recordSeparator})
	return i.parseEach(r, text, recordSeparator, "element")
}

const recordSeparator = 0x1e

func (i *Inspector) parseEach(r *result, text []byte, separator byte, what string) ([]any, error) {
	list, left := []any{}, maxElements
	for n := 1; len(text) > 0; n++ {
		one := text
		if end := bytes.IndexByte(text, separator); end >= 0 {
			one, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		if one = bytes.TrimSpace(one); len(one) == 0 {
			continue
		}
		v, repairs, err := canon.ParseLoose(one, canon.Limits{Bytes: i.hard, Depth: maxDepth, Properties: left, Elements: left})
		if err != nil {
			return nil, fmt.Errorf("%s %d: %s", what, n, toolkeep.AsError(err).Message)
		}
		r.repaired(repairs)
		if left -= count(v); left <= 0 {
			return nil, errElements
		}
		list = append(list, v)
	}
	return list, nil
}

// count returns the number of values in a tree.
func count(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, el := range v {
			n += count(el)
		}
	case map[string]any:
		for _, el := range v {
			n += count(el)
		}
	}
	return n
}

// parseCSV parses comma-separated values (RFC 4180) into a list of objects, one per row, with the header row's
// names. Empty or duplicate names get their position: "column 3", "name (3)". A row shorter than the header lacks
// the last columns; a longer one is refused. Without a header row (header=absent in the type) rows are lists. All
// values are text. Of a table that tableOf wrote, escaped, the apostrophes before formulas are not part of them.
func parseCSV(text []byte, header, escaped bool) ([]any, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, utf8BOM)))
	r.FieldsPerRecord, r.ReuseRecord = -1, true
	t := newTable(header)
	for {
		row, err := r.Read()
		if err == io.EOF {
			return t.rows, nil
		}
		if err != nil {
			var e *csv.ParseError
			if errors.As(err, &e) {
				return nil, fmt.Errorf("line %d has a quote out of place", e.Line)
			}
			return nil, err
		}
		for n := range row {
			if escaped {
				row[n] = unescaped(row[n])
			}
		}
		line, _ := r.FieldPos(0)
		if err := t.add(row, line); err != nil {
			return nil, err
		}
	}
}

// parseTSV does the same for tab-separated values, which have no quotes.
func parseTSV(text []byte, header bool) ([]any, error) {
	t := newTable(header)
	n := 0
	for line := range strings.Lines(string(bytes.TrimPrefix(text, utf8BOM))) {
		n++
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		if err := t.add(strings.Split(line, "\t"), n); err != nil {
			return nil, err
		}
	}
	return t.rows, nil
}

// table is a table being read.
type table struct {
	named bool
	names []string
	rows  []any
	left  int
}

func newTable(named bool) *table { return &table{named: named, rows: []any{}, left: maxElements} }

func (t *table) add(row []string, line int) error {
	if t.left -= 1 + len(row); t.left < 0 {
		return errElements
	}
	if !t.named {
		list := make([]any, len(row))
		for i, s := range row {
			list[i] = s
		}
		t.rows = append(t.rows, list)
		return nil
	}
	if t.names == nil {
		t.name(row)
		return nil
	}
	if len(row) > len(t.names) {
		return fmt.Errorf("line %d has %d fields, the header has %d", line, len(row), len(t.names))
	}
	object := make(map[string]any, len(row))
	for i, s := range row {
		object[t.names[i]] = s
	}
	t.rows = append(t.rows, object)
	return nil
}

func (t *table) name(header []string) {
	taken := make(map[string]bool, len(header))
	for i, s := range header {
		position := strconv.Itoa(i + 1)
		if s == "" {
			s = "column " + position
		}
		for taken[s] {
			s += " (" + position + ")"
		}
		taken[s] = true
		t.names = append(t.names, s)
	}
}
