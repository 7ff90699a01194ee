package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep/catalog"
)

// maxArgument bounds the name of an argument, in bytes: model providers refuse a whole request of
// which one tool has an argument whose name does not match ^[A-Za-z0-9_.-]{1,64}$.
const maxArgument = 64

// nameArguments gives each parameter its argument name: its own name if that is unique and one that
// model providers take; with its place appended if several places use the same name. A name that
// they refuse is written with the characters they take. Names that are kept are given first, so that
// an added parameter does not rename them.
func nameArguments(params []*param) {
	places := map[string]int{}
	for _, p := range params {
		places[p.name]++
	}
	taken := map[string]bool{}
	for _, p := range params {
		if places[p.name] == 1 && argumentName(p.name) == p.name {
			p.arg = p.name
			taken[p.arg] = true
		}
	}
	for _, p := range params {
		switch {
		case p.arg != "":
		case places[p.name] > 1:
			p.arg = freeName(argumentName(p.name+"_"+p.in), taken)
		default:
			p.arg = freeName(argumentName(p.name), taken)
		}
	}
}

var comparisons = strings.NewReplacer("<=", "_lte", ">=", "_gte", "<", "_lt", ">", "_gt", "!=", "_ne")

// argumentName returns a name that model providers take: the name itself, else its letters, digits
// and ".-_" with _ for what stands between them. One that is too long is cut, one that has none is
// named by its hash.
func argumentName(name string) string {
	if len(name) <= maxArgument && isPlainName(name) {
		return name
	}
	words := strings.FieldsFunc(catalog.PlainLetters(comparisons.Replace(name)), func(r rune) bool {
		return r >= 0x80 || !isPlainName(string(r))
	})
	for i := range words {
		words[i] = strings.Trim(words[i], "_")
	}
	out := strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "_")
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:3])
	switch {
	case out == "":
		return "arg_" + hash
	case len(out) > maxArgument:
		return strings.TrimRight(out[:maxArgument-7], "_-.") + "_" + hash
	}
	return out
}

// freeName returns the name, with a number if it is taken, and takes it.
func freeName(name string, taken map[string]bool) string {
	free := name
	for n := 2; taken[free]; n++ {
		suffix := fmt.Sprintf("_%d", n)
		free = name[:min(len(name), maxArgument-len(suffix))] + suffix
	}
	taken[free] = true
	return free
}
