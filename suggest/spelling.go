// Package suggest finds the name that somebody meant.
package suggest

import "math"

// maxLetters is how much of a word is compared, in bytes.
const maxLetters = 200

// Nearest is the name that takes the fewest changes to become of the wrong one, the
// first of several; "" if there are no names. Words are compared by their first 200
// bytes.
func Nearest(wrong string, names []string) string {
	best, fewest := "", math.MaxInt
	for _, n := range names {
		if d := distance(wrong, n); d < fewest {
			best, fewest = n, d
		}
	}
	return best
}

// Suggest is Nearest where somebody may have meant that name: at most half of its
// letters, and at least one, have to change; else "".
func Suggest(wrong string, names []string) string {
	n := Nearest(wrong, names)
	if distance(wrong, n) > max(1, min(len(n), maxLetters)/2) {
		return ""
	}
	return n
}

// distance is the number of bytes to insert, drop or change to make b of a.
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
