// Package suggest finds the name closest to a misspelt one.
package suggest

import (
	"iter"
	"math"
	"slices"
)

// maxLetters is how many bytes of a word are compared.
const maxLetters = 200

// Nearest returns the name with the smallest edit distance to wrong, the first if several tie; "" without names. It
// compares the first 200 bytes.
func Nearest(wrong string, names []string) string {
	best, fewest := "", math.MaxInt
	for _, n := range names {
		if d := distance(wrong, n, fewest-1); d < fewest {
			best, fewest = n, d
		}
	}
	return best
}

// Suggest is Nearest if the name is plausible: at most half of its letters, but at least one, may differ; else "".
func Suggest(wrong string, names []string) string {
	n := Nearest(wrong, names)
	if most := max(1, min(len(n), maxLetters)/2); distance(wrong, n, most) > most {
		return ""
	}
	return n
}

// MaxTypo is how many bytes of a name may be mistyped.
const MaxTypo = 2

// Typos returns the names that wrong may be a typing mistake of, at most most of them: the nearest first, and of those
// as near in the order of names. At most two bytes differ, but at least one, and one only in names of up to five.
func Typos(wrong string, names iter.Seq[string], most int) []string {
	var near [MaxTypo + 1][]string // by distance
	for n := range names {
		if d := distance(wrong, n, MaxTypo); d > 0 && d <= min(MaxTypo, max(1, len(n)/3)) && len(near[d]) < most {
			near[d] = append(near[d], n)
		}
	}
	all := slices.Concat(near[:]...)
	return all[:min(len(all), most)]
}

// distance returns the number of bytes to insert, drop or change to turn a into b, or a larger number than most if it
// is larger.
func distance(a, b string, most int) int {
	a, b = a[:min(len(a), maxLetters)], b[:min(len(b), maxLetters)]
	if d := len(a) - len(b); d > most || -d > most {
		return most + 1
	}
	var room [maxLetters + 1]int
	row := room[:len(b)+1]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
			least = min(least, row[j+1])
		}
		if least > most {
			return most + 1
		}
	}
	return row[len(b)]
}
