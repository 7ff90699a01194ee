// Package suggest finds the name closest to a misspelt one.
package suggest

import "math"

// maxLetters is how many bytes of a word are compared.
const maxLetters = 200

// Nearest returns the name with the smallest edit distance to wrong, the first if several tie; "" without names. It
// compares the first 200 bytes.
func Nearest(wrong string, names []string) string {
	best, fewest := "", math.MaxInt
	for _, n := range names {
		if d := distance(wrong, n); d < fewest {
			best, fewest = n, d
		}
	}
	return best
}

// Suggest is Nearest if the name is plausible: at most half of its letters, but at least one, may differ; else "".
func Suggest(wrong string, names []string) string {
	n := Nearest(wrong, names)
	if distance(wrong, n) > max(1, min(len(n), maxLetters)/2) {
		return ""
	}
	return n
}

// Typo is Nearest if at most two bytes differ, and one in names of up to five; else "".
func Typo(wrong string, names []string) string {
	n := Nearest(wrong, names)
	if distance(wrong, n) > min(2, max(1, len(n)/3)) {
		return ""
	}
	return n
}

// distance returns the number of bytes to insert, drop or change to turn a into b.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxLetters)], b[:min(len(b), maxLetters)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
