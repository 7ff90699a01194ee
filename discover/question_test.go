package discover

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"
	"weak"

	"github.com/toolkeep/toolkeep"
)

func TestCheckQuery(t *testing.T) {
	for text, found := range map[string]string{"": "", "send a\tletter\r\nand é 漢 \u200d": "", "a\x00b": "U+0000", "\x1b[31mred": "U+001B", "a\x7f": "U+007F", "a\u0085b": "U+0085", "\xff": ""} {
		err := CheckQuery(text)
		var e *toolkeep.Error
		switch {
		case found == "":
			if err != nil || PlainQuery(text) != text && text != "\xff" {
				t.Errorf("%q: %v", text, err)
			}
		case !errors.As(err, &e) || e.Code != toolkeep.InvalidEncoding || e.Message != "the query contains the control character "+found+"; leave it out":
			t.Errorf("%q: %v", text, err)
		case CheckQuery(PlainQuery(text)) != nil:
			t.Errorf("%q stays as it is", text)
		}
	}
}

// TestNumbersAreNoWords has a question's numbers find nothing, unless it has nothing else; a word with a letter is one.
func TestNumbersAreNoWords(t *testing.T) {
	x := New(Config{})
	x.Update(slices.Values([]toolkeep.Version{tool("a.one", "1.0.0", "Convert 100 files"), tool("a.two", "1.0.0", "Sign in with oauth2"), tool("a.three", "1.0.0", "Pay an amount")}))
	for ask, want := range map[string][]string{
		"pay 100":                {"a.three@1.0.0"},
		"pay 100.50, then ٣":     {"a.three@1.0.0"},
		"100":                    {"a.one@1.0.0"},
		"the 100":                {"a.one@1.0.0"},
		"oauth2":                 {"a.two@1.0.0"},
		"pay 3 with oauth2 at 7": {"a.three@1.0.0", "a.two@1.0.0"},
	} {
		got := found(x.Search(ask, 0, nil))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", ask, got, want)
		}
	}
}

// TestLongQuestions reads 16,000 characters of a question, and tells if there are more.
func TestLongQuestions(t *testing.T) {
	x := New(Config{})
	x.Update(slices.Values([]toolkeep.Version{tool("a.one", "1.0.0", "Count giraffes"), tool("a.two", "1.0.0", "Feed lions")}))
	filler := strings.Repeat("é ", MaxQuestion/2-5)
	for ask, want := range map[string]struct {
		tools []string
		cut   bool
	}{
		filler + " giraffes":        {[]string{"a.one@1.0.0"}, false},
		filler + " giraffes, lions": {[]string{"a.one@1.0.0"}, true},
		"lions " + filler + filler:  {[]string{"a.two@1.0.0"}, true},
	} {
		got, r := x.Find(t.Context(), Query{Text: ask}, nil)
		if !slices.Equal(found(got), want.tools) || r.Cut != want.cut {
			t.Errorf("%d characters: %v, cut %t", utf8.RuneCountInString(ask), found(got), r.Cut)
		}
	}
	// Its words are all looked for.
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "word%d ", i)
	}
	if got := found(x.Search(many.String()+"giraffes", 0, nil)); !slices.Equal(got, []string{"a.one@1.0.0"}) {
		t.Errorf("after 1,000 words: %v", got)
	}
}

// TestQuestionIsLetGo holds nothing of a question's memory after the search: neither the answer nor the vectors that are kept of it.
func TestQuestionIsLetGo(t *testing.T) {
	x := meaningIndex(t, turned{}, tool("a.t1", "1.0.0", "Paint fences"))
	embedded(t, x, 1)
	for name, filler := range map[string]string{"short": " a good thing", "long": strings.Repeat(" a good thing.", MaxQuestion)} {
		text := []byte("ask1n1 paint" + filler)
		held := weak.Make(&text[0])
		answer, r := x.Find(t.Context(), Query{Text: unsafe.String(&text[0], len(text))}, nil)
		if len(answer) != 1 || len(answer[0].Why) == 0 || r.Degraded != "" {
			t.Fatalf("%s: %+v, %+v", name, answer, r)
		}
		text = nil
		runtime.GC()
		if held.Value() != nil {
			t.Errorf("a %s question is still held", name)
		}
		runtime.KeepAlive(answer)
		runtime.KeepAlive(r)
	}
}
