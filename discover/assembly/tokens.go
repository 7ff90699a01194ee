package assembly

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"
)

// Tokenizer is the vocabulary that tokens are counted with.
const Tokenizer = "o200k_base"

// vocabulary takes some 10 ms and 7 MB, which a process that shows no context saves.
var vocabulary = sync.OnceValue(codec.NewO200kBase)

// Tokens is how many tokens of o200k_base a text has. Texts that look like the
// vocabulary's special tokens are counted as the plain text they are.
func Tokens(text string) int {
	n, err := vocabulary().Count(strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		// The splitting pattern cannot fail on valid text; a count that is too high is
		// safe.
		return len(text)
	}
	return n
}

// atMost is the tokens of a text, or a number over most for one that is so long that
// counting it would only cost time: 16 bytes a token are never the mean of a text about
// tools.
func atMost(text string, most int) int {
	if most >= 0 && len(text) > 16*most+1024 {
		return max(most+1, len(text)/4)
	}
	return Tokens(text)
}
