package schema

import (
	"fmt"
	"regexp"
	"time"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// matchTimeout limits one match on the backtracking engine. Its clock ticks every 100 ms, so a match may run for up
// to about 150 ms.
const matchTimeout = 50 * time.Millisecond

// compilePattern prefers the linear-time engine.
func compilePattern(s string) (jsonschema.Regexp, error) {
	if re, err := regexp.Compile(s); err == nil {
		return re, nil
	}
	re, err := regexp2.Compile(s, regexp2.ECMAScript|regexp2.Unicode)
	if err != nil {
		return nil, fmt.Errorf("not a regular expression: %w", err)
	}
	re.MatchTimeout = matchTimeout
	return backtracking{re}, nil
}

type backtracking struct{ re *regexp2.Regexp }

func (b backtracking) String() string { return b.re.String() }

// MatchString panics with patternTimeout if the match takes too long: false would let a value pass under "not",
// true elsewhere.
func (b backtracking) MatchString(s string) bool {
	ok, err := b.re.MatchString(s)
	if err != nil {
		panic(patternTimeout{b.re.String()})
	}
	return ok
}

type patternTimeout struct{ pattern string }
