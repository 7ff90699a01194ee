package discover

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"
)

const maxWord = 64 // bytes; anything longer is data

// words yields the words of a text in order, lower case, with names split: getHTTPUser_v2 gives
// get, http, user, v2.
func words(text string, yield func(word string)) {
	if !isASCII(text) {
		text = norm.NFKD.String(text)
	}
	start := -1 // of the current word
	var last rune
	emit := func(end int) {
		if start >= 0 && end > start && end-start <= maxWord {
			yield(lower(text[start:end]))
		}
		start = -1
	}
	for i, r := range text {
		switch {
		case unicode.Is(unicode.Mn, r): // accents, which NFKD has split off
			continue
		case dense(r):
			emit(i)
			if dense(last) {
				yield(string([]rune{last, r}))
			} else if next, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(r):]); !dense(next) {
				yield(string(r))
			}
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			emit(i)
		case start < 0:
			start = i
		case unicode.IsUpper(r):
			next, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(r):])
			if !unicode.IsUpper(last) || unicode.IsLower(next) {
				// lowerUpper, or the last capital of HTTPUser
				emit(i)
				start = i
			}
		}
		last = r
	}
	emit(len(text))
}

// dense reports scripts without spaces between words.
func dense(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// lower also removes the accents left inside a word.
func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
}

// stem reduces a word to its stem.
func stem(word string) string {
	if len(word) < 3 {
		return word
	}
	return english.Stem(word, false)
}

// stops are words that say nothing about a tool: function words, and phrases of asking.
var stops = set(`a an the this that these those some any all each every another other such
 i me my we us our you your he him his she her it its they them their who whom whose what which
 am is are was were be been being do does did done have has had having will would shall should can could may might must
 and or but nor if then else so than as of at by for with about into onto from to in on off out up down over under
 between through during before after above below again further also too very just only not no yes there here when where why how
 please help want need like let tell know give show make sure thanks thank hi hello
 s t re ve ll d m don via per etc eg ie`)

func set(list string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		m[w] = true
	}
	return m
}

func isStop(word string) bool { return stops[word] }

// saysNothing reports whether a query's word is not looked for: a stop word or a number, which is a value and not
// what a tool is about. A word with a letter, such as v2 or s3, is one.
func saysNothing(word string) bool {
	return isStop(word) || strings.IndexFunc(word, func(r rune) bool { return !unicode.IsDigit(r) }) < 0
}
