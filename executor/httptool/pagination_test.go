package httptool

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// shelf serves seven items in pages of every kind, and records requests.
func shelf(t testing.TB, asked *[]string) string {
	const all = 7
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.RequestURI())
		q := r.URL.Query()
		number := func(name string, otherwise int) int {
			if n, err := strconv.Atoi(q.Get(name)); err == nil {
				return n
			}
			return otherwise
		}
		size := number("size", 3)
		from := number("from", 0)
		if p := q.Get("page"); p != "" {
			from = (number("page", 1) - 1) * size
		}
		if c := q.Get("cursor"); c != "" {
			from, _ = strconv.Atoi(strings.TrimPrefix(c, "after/+"))
		}
		to := min(from+size, all)
		items := make([]any, 0, size)
		for i := from; i < to; i++ {
			items = append(items, json.Number(strconv.Itoa(i)))
		}
		answer := map[string]any{"data": map[string]any{"items": items}, "more": to < all, "total": json.Number("7")}
		if to < all {
			answer["cursor"] = fmt.Sprint("after/+", to)
			answer["next"] = fmt.Sprintf("/?from=%d&size=%d", to, size)
			w.Header().Add("Link", `</?from=0>; rel="first", </?from=6>; rel=last`)
			w.Header().Add("Link", fmt.Sprintf(`<?from=%d&size=%d>; title="a, \"b\"; rel=prev"; rel="page next"`, to, size))
			if q.Get("bare") != "" {
				w.Header().Set("Link", fmt.Sprintf(`<?bare=1&from=%d>; rel=next`, to))
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if q.Get("bare") != "" {
			w.Write(canon.Append(nil, items))
			return
		}
		w.Write(canon.Append(nil, answer))
	})
}

func TestPages(t *testing.T) {
	tests := []struct {
		name, pagination, args string
		want                   string
		asked                  []string
		warn                   string
	}{
		{name: "link", pagination: `{"kind":"link","items":"/data/items"}`, want: "[0,1,2,3,4,5,6]",
			asked: []string{"/", "/?from=3&size=3", "/?from=6&size=3"}},
		{name: "link to lists", pagination: `{"kind":"link"}`, args: `{"bare":"1","size":6}`, want: "[0,1,2,3,4,5,6]",
			asked: []string{"/?bare=1&size=6", "/?bare=1&from=6"}},
		{name: "url", pagination: `{"kind":"url","items":"/data/items","next":"/next"}`, want: "[0,1,2,3,4,5,6]",
			asked: []string{"/", "/?from=3&size=3", "/?from=6&size=3"}},
		{name: "cursor", pagination: `{"kind":"cursor","items":"/data/items","next":"/cursor","param":"cursor"}`, args: `{"q":"x y"}`, want: "[0,1,2,3,4,5,6]",
			asked: []string{"/?q=x%20y", "/?q=x%20y&cursor=after%2F%2B3", "/?q=x%20y&cursor=after%2F%2B6"}},
		{name: "page", pagination: `{"kind":"page","items":"/data/items","param":"page","more":"/more"}`, want: "[0,1,2,3,4,5,6]",
			asked: []string{"/", "/?page=2", "/?page=3"}},
		{name: "page by size", pagination: `{"kind":"page","items":"/data/items","param":"page","size_param":"size","size":4}`, want: "[0,1,2,3,4,5,6]",
			asked: []string{"/?size=4", "/?size=4&page=2"}},
		{name: "page from the call", pagination: `{"kind":"page","items":"/data/items","param":"page","size_param":"size","size":4}`, args: `{"page":2,"size":2}`, want: "[2,3,4,5,6]",
			asked: []string{"/?page=2&size=2", "/?size=2&page=3", "/?size=2&page=4"}},
		{name: "offset to an empty page", pagination: `{"kind":"offset","items":"/data/items","param":"from"}`, want: "[0,1,2,3,4,5,6]",
			asked: []string{"/", "/?from=3", "/?from=6", "/?from=7"}},
		{name: "offset to the total", pagination: `{"kind":"offset","items":"/data/items","param":"from","total":"/total"}`, want: "[0,1,2,3,4,5,6]",
			asked: []string{"/", "/?from=3", "/?from=6"}},
		{name: "the most pages", pagination: `{"kind":"link","items":"/data/items","max_pages":2}`, want: "[0,1,2,3,4,5]",
			asked: []string{"/", "/?from=3&size=3"}, warn: "at most 2 pages"},
		{name: "the call's most pages", pagination: `{"kind":"link","items":"/data/items","max_pages":2,"max_pages_arg":"pages"}`, args: `{"pages":1}`, want: "[0,1,2]",
			asked: []string{"/"}, warn: "at most 1 pages"},
		{name: "more than the most", pagination: `{"kind":"link","items":"/data/items","max_pages":2,"max_pages_arg":"pages"}`, args: `{"pages":99}`, want: "[0,1,2,3,4,5]",
			asked: []string{"/", "/?from=3&size=3"}, warn: "at most 2 pages"},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var asked []string
			m := manifest(t, shelf(t, &asked), `{"method":"GET","server":"SERVER","path":"/","parameters":[{"name":"q","in":"query"},{"name":"bare","in":"query"},{"name":"page","in":"query"},{"name":"size","in":"query"}],"pagination":`+tt.pagination+`}`)
			if tt.args == "" {
				tt.args = `{}`
			}
			out, err := execute(t, e, m, tt.args)
			if err != nil {
				t.Fatal(err, err.Details)
			}
			if got := string(canon.Append(nil, out.Value)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if fmt.Sprint(asked) != fmt.Sprint(tt.asked) {
				t.Errorf("asked %q\nwant  %q", asked, tt.asked)
			}
			if (tt.warn == "") != (len(out.Warnings) == 0) || tt.warn != "" && !strings.Contains(out.Warnings[0].Message, tt.warn) {
				t.Errorf("warned %v, want %q", out.Warnings, tt.warn)
			}
		})
	}
}

// TestPagesFail: pages that must not be followed, and pages that fail.
func TestPagesFail(t *testing.T) {
	other := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("the other origin was asked %s", r.URL) })
	page := func(n int, items string) string { return fmt.Sprintf(`{"items":%s,"n":%d,`, items, n) }
	tests := []struct {
		name       string
		pagination string
		answers    []string // one per request; a number is a status
		limit      int64
		want, warn string
		code       toolkeep.Code
		page       int
	}{
		{name: "another origin", answers: []string{page(1, "[1]") + `"next":"` + other + `/x"}`}, want: "[1]", warn: "another origin"},
		{name: "another scheme", answers: []string{page(1, "[1]") + `"next":"ftp://x.example/"}`}, want: "[1]", warn: "cannot be read"},
		{name: "round and round", answers: []string{page(1, "[1]") + `"next":"/?p=2"}`, page(2, "[2]") + `"next":"/"}`}, want: "[1,2]", warn: "fetched already"},
		{name: "the same cursor", pagination: `{"kind":"cursor","items":"/items","next":"/next","param":"c"}`,
			answers: []string{page(1, "[1]") + `"next":"a"}`, page(2, "[2]") + `"next":"a"}`}, want: "[1,2]", warn: "cursor again"},
		{name: "cursors in a circle", pagination: `{"kind":"cursor","items":"/items","next":"/next","param":"c"}`,
			answers: []string{page(1, "[1]") + `"next":"a"}`, page(2, "[2]") + `"next":"b"}`, page(3, "[3]") + `"next":"a"}`}, want: "[1,2,3]", warn: "cursor again"},
		{name: "characters that are none", answers: []string{page(1, `["\ud83d","a\u0000"]`) + `"next":null,"next":null}`}, want: "[\"\ufffd\",\"a\ufffd\"]", warn: "U+FFFD"},
		{name: "bytes", limit: 100, answers: []string{page(1, "[1]") + `"next":"/?p=2"}`, page(2, `["`+strings.Repeat("x", 90)+`"]`) + `"next":"/?p=3"}`}, want: "[1]", warn: "limit of bytes"},
		{name: "bytes at once", limit: 10, answers: []string{page(1, "[1]") + `"next":"/?p=2"}`}, code: toolkeep.ResultTooLarge, page: 1},
		{name: "no list", answers: []string{`{"items":{}}`}, code: toolkeep.InvalidResponse, page: 1},
		{name: "no items", answers: []string{`{}`}, code: toolkeep.InvalidResponse, page: 1},
		{name: "no JSON", answers: []string{page(1, "[1]") + `"next":"/?p=2"}`, `<html>`}, code: toolkeep.InvalidResponse, page: 2},
		{name: "a page fails", answers: []string{page(1, "[1]") + `"next":"/?p=2"}`, "503"}, code: toolkeep.UpstreamServerError, page: 2},
		{name: "no content ends", answers: []string{page(1, "[1]") + `"next":"/?p=2"}`, "204"}, want: "[1]"},
		{name: "null ends", answers: []string{page(1, "[1]") + `"next":"/?p=2"}`, `{"items":null,"next":null}`}, want: "[1]"},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			base := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if n == len(tt.answers) {
					t.Errorf("asked once more: %s", r.URL)
					return
				}
				answer := tt.answers[n]
				n++
				if status, err := strconv.Atoi(answer); err == nil {
					w.WriteHeader(status)
					return
				}
				w.Write([]byte(answer))
			})
			if tt.pagination == "" {
				tt.pagination = `{"kind":"url","items":"/items","next":"/next"}`
			}
			m := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/","pagination":`+tt.pagination+`}`)
			out, err := execute(t, e, m, `{}`, func(x *toolkeep.Execution) {
				if tt.limit > 0 {
					x.MaxBytes = tt.limit
				}
			})
			if tt.code != "" {
				if err == nil || err.Code != tt.code || err.Details["page"] != tt.page {
					t.Fatalf("error = %+v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err, err.Details)
			}
			if got := string(canon.Append(nil, out.Value)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if (tt.warn == "") != (len(out.Warnings) == 0) || tt.warn != "" && !strings.Contains(out.Warnings[0].Message, tt.warn) {
				t.Errorf("warned %v, want %q", out.Warnings, tt.warn)
			}
		})
	}
}

// TestPagesKeepTheKey: the credential is sent with each page of the same origin.
func TestPagesKeepTheKey(t *testing.T) {
	var asked []string
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		if len(asked) == 1 {
			w.Header().Set("Link", `</?p=2>; rel=next`)
		}
		w.Write([]byte(`[]`))
	})
	m := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/","pagination":{"kind":"link"}}`)
	_, err := execute(t, newExecutor(t), m, `{}`, func(x *toolkeep.Execution) {
		x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: "b"}, {Spec: toolkeep.AuthSpec{Type: "api_key", In: "query", Name: "k"}, Value: "v"}}
	})
	if want := "[/?k=v Bearer b /?p=2&k=v Bearer b]"; err != nil || fmt.Sprint(asked) != want {
		t.Errorf("%v, asked %v, want %s", err, asked, want)
	}
}

func TestPaginationFaults(t *testing.T) {
	tests := []struct{ binding, pointer string }{
		{`"method":"GET","pagination":{}`, "/kind"},
		{`"method":"GET","pagination":{"kind":"magic"}`, "/kind"},
		{`"method":"GET","pagination":{"kind":"cursor","param":"c"}`, "/next"},
		{`"method":"GET","pagination":{"kind":"cursor","next":"/c"}`, "/param"},
		{`"method":"GET","pagination":{"kind":"link","param":"c"}`, "/param"},
		{`"method":"GET","pagination":{"kind":"link","items":"data"}`, "/items"},
		{`"method":"GET","pagination":{"kind":"link","max_pages":101}`, "/max_pages"},
		{`"method":"GET","pagination":{"kind":"link","max_pages":0}`, "/max_pages"},
		{`"method":"GET","pagination":{"kind":"page","param":"p","size_param":"s"}`, "/size"},
		{`"method":"GET","pagination":{"kind":"link","max_pages_arg":"pages"}`, "/max_pages_arg"},
		{`"method":"GET","pagination":{"kind":"link","x":1}`, "/x"},
		{`"method":"HEAD","pagination":{"kind":"link"}`, ""},
		{`"method":"POST","pagination":{"kind":"link"}`, ""},
		{`"method":"GET","stream":{"max_events":0}`, "/max_events"},
		{`"method":"GET","stream":{"progress":"x"}`, "/progress"},
		{`"method":"GET","stream":{"max_bytes":"1"}`, "/max_bytes"},
		{`"method":"GET","response":{"content_type":"json"}`, "/content_type"},
		{`"method":"GET","response":{"x":"json"}`, "/x"},
	}
	for _, tt := range tests {
		m := manifest(t, "http://x.example", `{`+tt.binding+`,"server":"SERVER","path":"/"}`, func(m *toolkeep.Manifest) {
			m.SideEffects = "writes"
			m.ParametersSchema = []byte(`{"type":"object","properties":{"a":{}}}`)
		})
		section := "pagination"
		for _, name := range []string{"stream", "response"} {
			if strings.Contains(tt.binding, `"`+name+`":`) {
				section = name
			}
		}
		want := bindings.At + "/" + section + tt.pointer
		_, faults := parse(m)
		found := false
		for _, f := range faults {
			found = found || f.Pointer == want
		}
		if !found {
			t.Errorf("%s: no fault at %s among %v", tt.binding, want, faults)
		}
	}
}

func TestNextLink(t *testing.T) {
	tests := []struct {
		headers []string
		want    string
	}{
		{nil, ""},
		{[]string{`<https://x.example/2>; rel="next"`}, "https://x.example/2"},
		{[]string{`</1>; rel=prev, </3>;rel=NEXT`}, "/3"},
		{[]string{`</1>; rel=prev`, `</3> ; REL = "last  next"`}, "/3"},
		{[]string{`</a,b;c>; rel=next`}, "/a,b;c"},
		{[]string{`</1>; title="x, </2>; rel=next"; rel=prev`}, ""},
		{[]string{`</1>; rel=prev; rel=next`}, ""},
		{[]string{`</1>; anchor="/other"; rel=next, </2>; rel=next`}, "/2"},
		{[]string{`</1>; rel=nextish`, `</2>; foo; rel=next`}, "/2"},
		{[]string{`,, </2>; rel=next`}, "/2"},
		{[]string{`</2; rel=next`}, ""},
		{[]string{`nonsense`, `</2>; rel="next`}, "/2"},
		{[]string{`< /2 >; rel=next`}, "/2"},
		{[]string{strings.Repeat(`</1>,`, 1000) + `</2>; rel=next`}, ""},
	}
	for _, tt := range tests {
		if got := nextLink(tt.headers); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.headers, got, tt.want)
		}
	}
}
