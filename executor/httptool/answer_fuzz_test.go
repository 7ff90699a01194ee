package httptool

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep/canon"
)

// readAll reads a stream to its end or first error.
func readAll(in io.Reader, next func(*lines) (*event, error), limit int64) (list []any, err error) {
	l := &lines{r: bufio.NewReader(in), limit: limit}
	for {
		ev, err := next(l)
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return list, err
		}
		list = append(list, ev.value)
	}
}

// FuzzEvents reads streams whole and byte by byte: both give the same elements, all of
// them JSON.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"data: 1\n\ndata: {\"a\":[1]}\nid: 3\n\n", "data: a\r\rdata: b\r\n\r\nevent: x\n\n", ":c\ndata\ndata\n\n\ufeff", "\ufeffdata: x\n\n",
		"1\n{\"a\":2}\r\n\n[3]", "\x1e1\n\x1e\x1e{\"a\":\"\x1e\"}", "data: \xff\x00\n\n",
	} {
		for kind := range byte(3) {
			f.Add(kind, s, int64(1000))
		}
	}
	kinds := []func(*lines) (*event, error){(*lines).sse, (*lines).json, (*lines).sequence}
	f.Fuzz(func(t *testing.T, kind byte, in string, limit int64) {
		next := kinds[int(kind)%len(kinds)]
		limit = max(limit, 1) % 10_000
		whole, err := readAll(strings.NewReader(in), next, limit)
		single, err2 := readAll(iotest.OneByteReader(strings.NewReader(in)), next, limit)
		if (err == nil) != (err2 == nil) || string(canon.Append(nil, whole)) != string(canon.Append(nil, single)) {
			t.Fatalf("%q gives %v, %v and byte by byte %v, %v", in, whole, err, single, err2)
		}
		text := canon.Append(nil, any(whole))
		if !utf8.Valid(text) {
			t.Fatalf("%q gives %q", in, text)
		}
		for _, v := range whole {
			if err := canon.Check(v, 2000); err != nil {
				t.Fatalf("%q gives %v: %v", in, v, err)
			}
		}
	})
}

func FuzzLink(f *testing.F) {
	for _, s := range []string{`<a>; rel=next`, `<a>; rel="prev next"; x="\"", <b>;rel=next`, `<a>;=;==;"`, `<`, `<a>;rel`, `,,<a> ; rel = next ;`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		target := nextLink([]string{s})
		if target != "" && !strings.Contains(s, "<"+target) && !strings.Contains(s, target+">") && !strings.Contains(s, target) {
			t.Fatalf("%q gives %q", s, target)
		}
		if target != "" && !strings.Contains(strings.ToLower(strings.ReplaceAll(s, `\`, "")), "next") {
			t.Fatalf("%q has no next and gives %q", s, target)
		}
	})
}
