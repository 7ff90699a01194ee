package assembly

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/toolkeep/toolkeep"
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

// bytesPerToken is what manifests have on average.
const bytesPerToken = 4

// tokensOf estimates the tokens of the tools' whole manifests: counting those of 10,000 tools would take seconds.
func tokensOf(tools []*toolkeep.Tool) int {
	bytes := 0
	for _, t := range tools {
		if p, ok := t.Packed.(interface{ Size() int }); ok {
			bytes += p.Size()
		} else {
			bytes += len(t.Raw)
		}
	}
	return bytes / bytesPerToken
}
