package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
	"golang.org/x/text/width"
)

// screen is what is known of the terminal that is written to. A pipe or a file has the zero value: its tables are as wide
// as their values, and have no colours.
type screen struct {
	terminal bool
	colours  bool // neither NO_COLOR nor TERM=dumb forbids them
	columns  int  // 0 if the width is not known
}

// screenOf looks at what w is.
func screenOf(w io.Writer) screen {
	if p, ok := w.(*page); ok {
		return screen{columns: p.columns}
	}
	f, ok := w.(*os.File)
	if !ok {
		return screen{}
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return screen{}
	}
	s := screen{terminal: true, columns: int(size.Col), colours: os.Getenv("NO_COLOR") == "" && !dumb()}
	if s.columns == 0 {
		s.columns, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	}
	return s
}

// dumb reports whether the terminal takes no escape sequences.
func dumb() bool { return os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb" }

func isTerminal(f *os.File) bool { return screenOf(f).terminal }

// page collects text that goes through printable before it is written to a screen of these columns.
type page struct {
	strings.Builder
	columns int
}

// table prints rows in columns. On a terminal they fit its width.
func table(w io.Writer, head string, rows func(row func(cells ...any))) error {
	lines := [][]string{strings.Split(head, "|")}
	rows(func(cells ...any) {
		line := make([]string, len(cells))
		for i, c := range cells {
			line[i] = printable(fmt.Sprint(c), "")
		}
		lines = append(lines, line)
	})
	_, err := io.WriteString(w, screenOf(w).layout(lines))
	return err
}

const (
	gap  = 2  // between columns
	keep = 16 // of a column that is cut, at least
)

// layout puts lines, the first of which has the heads, into columns. Where the screen is too narrow, long values are cut,
// except those of the first column, which people copy; and where that does not do, each row becomes a block of lines.
func (s screen) layout(lines [][]string) string {
	var widths []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], wide(cell))
		}
	}
	if s.columns > 0 && !fit(widths, s.columns) {
		return s.blocks(lines)
	}
	var b strings.Builder
	for at, line := range lines {
		for i, cell := range line {
			if s.columns > 0 {
				cell = cut(cell, widths[i])
			}
			b.WriteString(s.tint(lines[0], at, i, cell))
			if rest := strings.Join(line[i+1:], ""); rest == "" {
				break
			}
			b.WriteString(strings.Repeat(" ", widths[i]-wide(cell)+gap))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// fit narrows the widest columns until all are within the screen's, and reports whether that is possible.
func fit(widths []int, columns int) bool {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > columns; total-- {
		widest := 0
		for i := 1; i < len(widths); i++ {
			if widths[i] > keep && (widest == 0 || widths[i] >= widths[widest]) {
				widest = i
			}
		}
		if widest == 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

// blocks has each value on a line of its own, after its head.
func (s screen) blocks(lines [][]string) string {
	var b strings.Builder
	most := 0
	for _, head := range lines[0] {
		most = max(most, wide(head))
	}
	for at, line := range lines[1:] {
		if at > 0 {
			b.WriteByte('\n')
		}
		for i, cell := range line {
			if cell == "" || i >= len(lines[0]) {
				continue
			}
			head := lines[0][i]
			b.WriteString(s.tint(lines[0], 0, i, head) + strings.Repeat(" ", most-wide(head)+gap) + s.tint(lines[0], at+1, i, cell) + "\n")
		}
	}
	return b.String()
}

// wide is how many columns text takes on a terminal.
func wide(text string) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// cut shortens text to so many columns.
func cut(text string, most int) string {
	if wide(text) <= most {
		return text
	}
	n := 1 // of the mark
	for i, r := range text {
		if n += runeWidth(r); n > most {
			return text[:i] + "…"
		}
	}
	return text
}

// Colours of states, by their first word.
const good, fair, bad = "\x1b[32m", "\x1b[33m", "\x1b[31m"

var tints = map[string]string{
	"ok": good, "ready": good, "active": good, "succeeded": good, "approved": good, "closed": good, "whole": good,
	"warn": fair, "held": fair, "pending": fair, "pending_approval": fair, "queued": fair, "deprecated": fair, "sunset": fair, "half_open": fair, "backoff": fair, "login_required": fair,
	"fail": bad, "failed": bad, "refused": bad, "refuse": bad, "denied": bad, "blocked": bad, "removed": bad, "revoked": bad, "expired": bad, "missing": bad, "open": bad, "unknown": bad,
}

// tint colours a cell that is laid out: heads are bold, and states have the colour of what they mean.
func (s screen) tint(heads []string, line, i int, cell string) string {
	colour := ""
	switch {
	case !s.colours || cell == "":
	case line == 0:
		colour = "\x1b[1m"
	case i < len(heads) && (heads[i] == "STATE" || heads[i] == "VERDICT"):
		word, _, _ := strings.Cut(cell, " ")
		colour = tints[strings.TrimRight(word, ",:")]
	}
	if colour == "" {
		return cell
	}
	return colour + cell + "\x1b[0m"
}

// clean is text from outside as it is written: a file or a pipe gets it unchanged.
func (s screen) clean(text string) string {
	if !s.terminal {
		return text
	}
	return printable(text, "\n\t")
}

// errText is standard error for what has text from outside in it, such as a tool's message or an error that quotes a result.
func (a *app) errText() io.Writer { return cleaned{a.stderr} }

type cleaned struct{ w io.Writer }

func (c cleaned) Write(p []byte) (int, error) {
	if _, err := io.WriteString(c.w, screenOf(c.w).clean(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// printable returns text from outside as a terminal may get it: white space other than in keep is a blank, and what does not
// print, such as the begin of an escape sequence or a change of the direction of writing, is U+FFFD. Joiners within words stay.
func printable(s, keep string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r), strings.ContainsRune(keep, r), r == '\u200c', r == '\u200d':
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, s)
}
