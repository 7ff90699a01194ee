package builtin

import (
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

// echo returns its arguments.
func echo(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	if x.Args == nil {
		return map[string]any{}, nil
	}
	return x.Args, nil
}

// decode decodes text in the encoding.
func decode(s, encoding string) ([]byte, bool) {
	switch encoding {
	case "hex":
		b, err := hex.DecodeString(s)
		return b, err == nil
	case "base64":
		return decodeBase64(s)
	}
	return []byte(s), true
}

// decodeBase64 accepts both alphabets, with or without padding.
func decodeBase64(s string) ([]byte, bool) {
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	b, err := base64.RawStdEncoding.DecodeString(s)
	return b, err == nil
}

func hashText(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	algorithm := text(x.Args, "algorithm", "sha256")
	input, ok := decode(text(x.Args, "text", ""), text(x.Args, "input_encoding", "utf8"))
	if !ok {
		return nil, bad("/text", "format", "the text is not in the input_encoding that was named")
	}
	var sum []byte
	switch algorithm {
	case "md5":
		s := md5.Sum(input)
		sum = s[:]
	case "sha1":
		s := sha1.Sum(input)
		sum = s[:]
	case "sha512":
		s := sha512.Sum512(input)
		sum = s[:]
	case "sha256":
		s := sha256.Sum256(input)
		sum = s[:]
	default:
		return nil, bad("/algorithm", "enum", "the algorithm is one of sha256, sha512, sha1 and md5")
	}
	digest := hex.EncodeToString(sum)
	if text(x.Args, "output_encoding", "hex") == "base64" {
		digest = base64.StdEncoding.EncodeToString(sum)
	}
	return map[string]any{"algorithm": algorithm, "digest": digest, "bytes": number(int64(len(input)))}, nil
}

func base64Text(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	s := text(x.Args, "text", "")
	if text(x.Args, "mode", "encode") == "encode" {
		enc := base64.StdEncoding
		if flag(x.Args, "url_safe") {
			enc = base64.RawURLEncoding
		}
		return map[string]any{"text": enc.EncodeToString([]byte(s)), "bytes": number(int64(len(s)))}, nil
	}
	b, ok := decodeBase64(s)
	if !ok {
		return nil, bad("/text", "format", "the text is not base64")
	}
	out := map[string]any{"bytes": number(int64(len(b)))}
	if utf8.Valid(b) && !strings.ContainsRune(string(b), 0) {
		out["text"] = string(b)
	} else {
		out["hex"] = hex.EncodeToString(b)
	}
	return out, nil
}

func textStats(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	s := text(x.Args, "text", "")
	words, longest, sentences := 0, 0, 0
	unique := make(map[string]bool)
	for w := range strings.FieldsSeq(s) {
		words++
		bare := strings.TrimFunc(w, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
		if bare != "" {
			unique[strings.ToLower(bare)] = true
			longest = max(longest, utf8.RuneCountInString(bare))
		}
		if last, _ := utf8.DecodeLastRuneInString(strings.TrimRight(w, "\"')]»”")); strings.ContainsRune(".!?…。", last) {
			sentences++
		}
	}
	lines := 0
	if s != "" {
		lines = strings.Count(strings.TrimSuffix(s, "\n"), "\n") + 1
	}
	return map[string]any{
		"bytes":        number(int64(len(s))),
		"characters":   number(int64(utf8.RuneCountInString(s))),
		"words":        number(int64(words)),
		"unique_words": number(int64(len(unique))),
		"longest_word": number(int64(longest)),
		"sentences":    number(int64(sentences)),
		"lines":        number(int64(lines)),
	}, nil
}

// regexFind searches with RE2, in time linear in the text.
func regexFind(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	pattern := text(x.Args, "pattern", "")
	if flag(x.Args, "ignore_case") {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, bad("/pattern", "pattern", "the pattern is not a regular expression in RE2 syntax (no look-around, no back-references)").Because(err)
	}
	s := text(x.Args, "text", "")
	limit := int(min(max(integer(x.Args, "limit", 100), 1), 1000))
	found := re.FindAllStringSubmatchIndex(s, limit+1)
	more := len(found) > limit
	found = found[:min(len(found), limit)]
	matches := make([]any, 0, len(found))
	at, runes := 0, 0 // positions count characters, continuing from the last match
	for _, m := range found {
		runes += utf8.RuneCountInString(s[at:m[0]])
		at = m[0]
		groups, named := []any{}, map[string]any{}
		for i := 1; i*2 < len(m); i++ {
			var g any
			if m[2*i] >= 0 {
				g = s[m[2*i]:m[2*i+1]]
			}
			groups = append(groups, g)
			if name := re.SubexpNames()[i]; name != "" {
				named[name] = g
			}
		}
		matches = append(matches, map[string]any{
			"match":  s[m[0]:m[1]],
			"start":  number(int64(runes)),
			"end":    number(int64(runes + utf8.RuneCountInString(s[m[0]:m[1]]))),
			"groups": groups, "named": named,
		})
	}
	return map[string]any{"matches": matches, "count": number(int64(len(matches))), "more": more}, nil
}

func newUUIDs(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	count := min(max(integer(x.Args, "count", 1), 1), 100)
	version := text(x.Args, "version", "v4")
	if version == "v5" {
		space, err := uuid.Parse(text(x.Args, "namespace", ""))
		name, ok := x.Args["name"].(string)
		if err != nil || !ok {
			return nil, bad("/namespace", "required", "a v5 UUID is made from a namespace, which is a UUID itself, and a name")
		}
		return map[string]any{"uuids": []any{uuid.NewSHA1(space, []byte(name)).String()}}, nil
	}
	make1 := uuid.NewRandom
	if version == "v7" {
		make1 = uuid.NewV7
	}
	ids := make([]any, 0, count)
	for range count {
		id, err := make1()
		if err != nil {
			return nil, toolkeep.AsError(err)
		}
		ids = append(ids, id.String())
	}
	return map[string]any{"uuids": ids}, nil
}
