package assembly

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"
)

// Tokenizer is the vocabulary used to count tokens.
const Tokenizer = "o200k_base"

// vocabulary takes some 10 ms and 7 MB, so it is loaded at first use.
var vocabulary = sync.OnceValue(codec.NewO200kBase)

// Tokens returns the number of o200k_base tokens in a text. Texts that look like special tokens are
// counted as plain text.
func Tokens(text string) int {
	n, err := vocabulary().Count(strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		// The splitting pattern cannot fail on valid text; an overestimate is safe.
		return len(text)
	}
	return n
}

// atMost returns the tokens of a text, or a number over most if the text is so long that counting
// is pointless: text about tools never averages 16 bytes per token.
func atMost(text string, most int) int {
	if most >= 0 && len(text) > 16*most+1024 {
		return max(most+1, len(text)/4)
	}
	return Tokens(text)
}
