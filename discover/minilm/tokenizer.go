package minilm

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

const (
	maxTokens    = 256 // of a text, [CLS] and [SEP] included
	maxWordRunes = 100 // longest word cut into pieces; a longer one is unknown
	// maxText bounds the bytes read of a text. It has 254 tokens long before that, unless it is
	// mostly spaces.
	maxText = 64 << 10
)

// special are the tokens the original recognises verbatim in a text.
var special = []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}

// tokenizer is BertTokenizer with do_lower_case.
type tokenizer struct {
	pieces        map[string]int32 // pieces that start a word
	inner         map[string]int32 // pieces after ##
	longest       int              // bytes of the longest piece
	unk, cls, sep int32
}

func readVocabulary(path string) (*tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &tokenizer{pieces: make(map[string]int32, 32<<10), inner: make(map[string]int32, 8<<10)}
	lines := bufio.NewScanner(f)
	n := int32(0)
	for ; lines.Scan(); n++ {
		piece := strings.TrimSuffix(lines.Text(), "\r")
		if rest, ok := strings.CutPrefix(piece, "##"); ok && rest != "" {
			t.inner[rest] = n
		} else {
			t.pieces[piece] = n
		}
		t.longest = max(t.longest, len(piece))
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if n != vocabulary {
		return nil, fmt.Errorf("%s has %d word pieces, all-MiniLM-L6-v2 has %d", path, n, vocabulary)
	}
	for name, id := range map[string]*int32{"[UNK]": &t.unk, "[CLS]": &t.cls, "[SEP]": &t.sep} {
		v, ok := t.pieces[name]
		if !ok {
			return nil, fmt.Errorf("%s has no word piece %s", path, name)
		}
		*id = v
	}
	return t, nil
}

// ids appends the tokens of a text to dst, between [CLS] and [SEP].
func (t *tokenizer) ids(dst []int32, text string) []int32 {
	if len(text) > maxText {
		text = text[:maxText]
	}
	first := len(dst)
	dst = append(dst, t.cls)
	full := func() bool { return len(dst)-first >= maxTokens-1 }
	for text != "" && !full() {
		plain, name := text, ""
		for at := strings.IndexByte(text, '['); at >= 0; {
			if name = specialAt(text[at:]); name != "" {
				plain = text[:at]
				break
			}
			next := strings.IndexByte(text[at+1:], '[')
			if next < 0 {
				break
			}
			at += 1 + next
		}
		for word := range words(plain) {
			if dst = t.cut(dst, word); full() {
				break
			}
		}
		if text = text[len(plain)+len(name):]; name != "" && !full() {
			dst = append(dst, t.pieces[name])
		}
	}
	dst = dst[:min(len(dst), first+maxTokens-1)]
	return append(dst, t.sep)
}

func specialAt(s string) string {
	for _, name := range special {
		if strings.HasPrefix(s, name) {
			return name
		}
	}
	return ""
}

// words returns the words of a text: lower case, without accents, with punctuation and ideographs
// as single words.
func words(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		var word []byte
		flush := func() bool {
			if len(word) == 0 {
				return true
			}
			ok := yield(string(word))
			word = word[:0]
			return ok
		}
		alone := func(r rune) bool {
			return flush() && yield(string(r))
		}
		for _, r := range norm.NFD.String(clean(text)) {
			ok := true
			switch {
			case unicode.Is(unicode.Mn, r):
			case r < 0x80 && r > ' ' && !letterOrDigit(r), unicode.IsPunct(r):
				ok = alone(r)
			case ideograph(r):
				ok = alone(r)
			case unicode.IsSpace(r):
				ok = flush()
			default:
				word = lower(word, r)
			}
			if !ok {
				return
			}
		}
		flush()
	}
}

func letterOrDigit(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// lower appends a rune in lower case. One rune has two.
func lower(word []byte, r rune) []byte {
	if r == 'İ' {
		return append(word, "i̇"...)
	}
	return append(word, string(unicode.ToLower(r))...)
}

// clean removes invisible characters and turns all white space into spaces.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r', unicode.IsSpace(r):
			return ' '
		case r == 0, r == unicode.ReplacementChar, unicode.Is(unicode.C, r):
			return -1
		}
		return r
	}, text)
}

// ideograph reports whether BERT's tokenizer treats a character as Chinese.
func ideograph(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df ||
		r >= 0x2a700 && r <= 0x2b73f || r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b820 && r <= 0x2ceaf ||
		r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}

// cut appends the pieces of a word: always the longest match, and one unknown token if nothing
// matches.
func (t *tokenizer) cut(dst []int32, word string) []int32 {
	n := 0
	for range word {
		n++
	}
	if n > maxWordRunes {
		return append(dst, t.unk)
	}
	first := len(dst)
	table := t.pieces
	for word != "" {
		end := min(len(word), t.longest)
		id, found := int32(0), false
		for ; end > 0; end-- {
			if id, found = table[word[:end]]; found {
				break
			}
		}
		if !found {
			return append(dst[:first], t.unk)
		}
		dst = append(dst, id)
		word, table = word[end:], t.inner
	}
	return dst
}
