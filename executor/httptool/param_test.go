package httptool

import (
	"net/url"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

func parseTree(s string) (any, error) { return canon.Parse([]byte(s), canon.Limits{}) }

func TestQueryStyles(t *testing.T) {
	const list, object = `["blue","black","br,own"]`, `{"R":100,"G":200,"B":1.50}`
	tests := []struct {
		name  string
		param parameter
		value string
		want  string // "E" is a refusal
	}{
		{"text", parameter{style: "form"}, `"a b&c=d/é+%"`, "color=a%20b%26c%3Dd%2F%C3%A9%2B%25"},
		{"number keeps its text", parameter{style: "form"}, `9007199254740993.10`, "color=9007199254740993.10"},
		{"boolean", parameter{style: "form"}, `false`, "color=false"},
		{"empty text", parameter{style: "form"}, `""`, "color="},
		{"null", parameter{style: "form"}, `null`, ""},
		{"null that may be empty", parameter{style: "form", allowEmpty: true}, `null`, "color="},
		{"form list", parameter{style: "form"}, list, "color=blue,black,br%2Cown"},
		{"form list exploded", parameter{style: "form", explode: true}, list, "color=blue&color=black&color=br%2Cown"},
		{"empty list", parameter{style: "form"}, `[]`, ""},
		{"empty list that may be empty", parameter{style: "form", allowEmpty: true}, `[]`, "color="},
		{"form object", parameter{style: "form"}, object, "color=B,1.50,G,200,R,100"},
		{"form object exploded", parameter{style: "form", explode: true}, object, "B=1.50&G=200&R=100"},
		{"form object with null", parameter{style: "form", explode: true}, `{"a":null,"b":1}`, "b=1"},
		{"form object takes a name", parameter{style: "form", explode: true}, `{"taken":1}`, "E"},
		{"form object takes a key", parameter{style: "form", explode: true}, `{"key":1}`, "E"},
		{"space list", parameter{style: "spaceDelimited"}, list, "color=blue%20black%20br%2Cown"},
		{"space object", parameter{style: "spaceDelimited"}, `{"R":1,"G":2}`, "color=G%202%20R%201"},
		{"space exploded", parameter{style: "spaceDelimited", explode: true}, `[1,2]`, "color=1&color=2"},
		{"pipe list", parameter{style: "pipeDelimited"}, `[1,2]`, "color=1%7C2"},
		{"pipe object", parameter{style: "pipeDelimited"}, `{"R":1,"G":2}`, "color=G%7C2%7CR%7C1"},
		{"pipe text", parameter{style: "pipeDelimited"}, `"x"`, "color=x"},
		{"deep object", parameter{style: "deepObject", explode: true}, object, "color%5BB%5D=1.50&color%5BG%5D=200&color%5BR%5D=100"},
		{"deep nested", parameter{style: "deepObject"}, `{"a":{"b":{"c":1}},"l":[1,2],"o":[{"x":3}]}`,
			"color%5Ba%5D%5Bb%5D%5Bc%5D=1&color%5Bl%5D%5B0%5D=1&color%5Bl%5D%5B1%5D=2&color%5Bo%5D%5B0%5D%5Bx%5D=3"},
		{"deep list", parameter{style: "deepObject"}, `["a",2,{"x":null,"y":[true]}]`, "color%5B0%5D=a&color%5B1%5D=2&color%5B2%5D%5By%5D%5B0%5D=true"},
		{"deep list in a list", parameter{style: "deepObject"}, `{"a":[[1],[2,3]]}`, "color%5Ba%5D%5B0%5D%5B0%5D=1&color%5Ba%5D%5B1%5D%5B0%5D=2&color%5Ba%5D%5B1%5D%5B1%5D=3"},
		{"deep null in a list", parameter{style: "deepObject"}, `{"a":[1,null]}`, "E"},
		{"deep brackets", parameter{style: "deepObject", deepLists: "brackets"}, `{"l":[1,2],"o":[{"x":3,"y":4},{"x":5,"y":6}]}`,
			"color%5Bl%5D%5B%5D=1&color%5Bl%5D%5B%5D=2&color%5Bo%5D%5B%5D%5Bx%5D=3&color%5Bo%5D%5B%5D%5By%5D=4&color%5Bo%5D%5B%5D%5Bx%5D=5&color%5Bo%5D%5B%5D%5By%5D=6"},
		{"deep brackets of unlike objects", parameter{style: "deepObject", deepLists: "brackets"}, `[{"x":1},{"y":2}]`, "E"},
		{"deep brackets of mixed elements", parameter{style: "deepObject", deepLists: "brackets"}, `[{"x":1},2]`, "E"},
		{"deep brackets of empty objects", parameter{style: "deepObject", deepLists: "brackets"}, `[{"x":null}]`, "E"},
		{"deep brackets of lists", parameter{style: "deepObject", deepLists: "brackets"}, `[[1]]`, "E"},
		{"deep brackets with lists in objects", parameter{style: "deepObject", deepLists: "brackets"}, `[{"x":[1]},{"x":[2]}]`, "E"},
		{"deep repeat", parameter{style: "deepObject", deepLists: "repeat"}, `{"l":[1,2]}`, "color%5Bl%5D=1&color%5Bl%5D=2"},
		{"deep repeat of objects", parameter{style: "deepObject", deepLists: "repeat"}, `[{"x":1}]`, "E"},
		{"deep bracket in a name", parameter{style: "deepObject"}, `{"a][b":1}`, "E"},
		{"deep too deep", parameter{style: "deepObject"}, strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20), "E"},
		{"list in a list", parameter{style: "form"}, `[[1]]`, "E"},
		{"null in a list", parameter{style: "form"}, `[null]`, "E"},
		{"object in an object", parameter{style: "form"}, `{"a":{}}`, "E"},
		{"reserved", parameter{style: "form", allowReserved: true}, `"/a:b?c=d,e"`, "color=/a:b?c=d,e"},
		{"reserved cannot break out", parameter{style: "form", allowReserved: true}, `"1&key=2#x;y+z%41[]"`, "color=1%26key=2%23x%3By%2Bz%2541%5B%5D"},
		{"json", parameter{json: true}, `{"b":[1.50,"é"],"a":null}`, "color=%7B%22a%22%3Anull%2C%22b%22%3A%5B1.50%2C%22%C3%A9%22%5D%7D"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.param.name, tt.param.arg, tt.param.in = "color", "color", "query"
			w := pairs{sep: "&", taken: map[string]bool{"taken": true}, keys: []header{{"key", "x"}}}
			err := w.parameter(&tt.param, tree(t, tt.value), escStrict)
			got := string(w.buf)
			if err != nil {
				got = "E"
				if err.Code != toolkeep.UnsafeArgument || !err.NothingSent {
					t.Errorf("error = %+v", err)
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s (%v)", got, tt.want, err)
			}
		})
	}
}

func TestPathStyles(t *testing.T) {
	const list, object = `["blue","black"]`, `{"R":100,"G":200}`
	tests := []struct {
		style   string
		explode bool
		value   string
		want    string
	}{
		{"simple", false, `"blue"`, "blue"},
		{"simple", false, `"a/b c;d,e"`, "a%2Fb%20c%3Bd%2Ce"},
		{"simple", false, `1.50`, "1.50"},
		{"simple", false, list, "blue,black"},
		{"simple", true, list, "blue,black"},
		{"simple", false, object, "G,200,R,100"},
		{"simple", true, object, "G=200,R=100"},
		{"label", false, `"blue"`, ".blue"},
		{"label", false, list, ".blue,black"},
		{"label", true, list, ".blue.black"},
		{"label", false, object, ".G,200,R,100"},
		{"label", true, object, ".G=200.R=100"},
		{"matrix", false, `"blue"`, ";color=blue"},
		{"matrix", true, `"blue"`, ";color=blue"},
		{"matrix", false, `""`, ";color"},
		{"matrix", false, list, ";color=blue,black"},
		{"matrix", true, list, ";color=blue;color=black"},
		{"matrix", false, object, ";color=G,200,R,100"},
		{"matrix", true, object, ";G=200;R=100"},
		{"simple", false, `""`, "E3320"},
		{"simple", false, `"."`, "E3320"},
		{"simple", false, `".."`, "E3320"},
		{"simple", false, `"../admin"`, "E3320"},
		{"simple", false, `"a/../b"`, "E3320"},
		{"simple", false, `"..\\admin"`, "E3320"},
		{"simple", false, `"..."`, "..."},
		{"simple", false, `"%2e%2e"`, "%252e%252e"},
		{"simple", false, `[]`, "E3320"},
		{"simple", false, `[""]`, "E3320"},
		{"simple", false, `{}`, "E3320"},
		{"simple", false, `[".."]`, "E3320"},
		{"simple", false, `{"..":1}`, "E3320"},
		{"simple", false, `[[1]]`, "E3320"},
		{"simple", false, `[null]`, "E3320"},
		{"simple", false, `{"a":[1]}`, "E3320"},
		{"simple", false, `null`, "E3302"},
		{"label", false, `"."`, "E3320"},
		{"label", false, `""`, "E3320"},
	}
	for _, tt := range tests {
		t.Run(tt.style+" "+tt.value, func(t *testing.T) {
			b := &binding{
				params: []parameter{{name: "color", arg: "color", in: "path", style: tt.style, explode: tt.explode}},
				path:   []piece{{text: "/v1/", param: -1}, {param: 0}, {text: "/x", param: -1}},
			}
			got, err := b.renderPath(map[string]any{"color": tree(t, tt.value)})
			want := "/v1/" + tt.want + "/x"
			if err != nil {
				got, want = string(err.Code), tt.want
				if !err.NothingSent {
					t.Error("NothingSent is not set")
				}
			}
			if got != want {
				t.Errorf("got %s, want %s (%v)", got, want, err)
			}
		})
	}
}

func TestDotsFromTwoValues(t *testing.T) {
	b := &binding{
		params: []parameter{{name: "a", arg: "a", in: "path", style: "label"}, {name: "b", arg: "b", in: "path", style: "label"}},
		path:   []piece{{text: "/", param: -1}, {param: 0}, {param: 1}},
	}
	if path, err := b.renderPath(map[string]any{"a": "", "b": ""}); err == nil {
		t.Errorf("two empty labels make %s", path)
	}
}

func TestHeaderText(t *testing.T) {
	tests := []struct {
		param parameter
		value string
		want  string
	}{
		{parameter{}, `"a b"`, "a b"},
		{parameter{}, `["a","b"]`, "a,b"},
		{parameter{}, `{"R":1,"G":2}`, "G,2,R,1"},
		{parameter{explode: true}, `{"R":1,"G":2}`, "G=2,R=1"},
		{parameter{json: true}, `{"b":1,"a":"é"}`, `{"a":"é","b":1}`},
		{parameter{}, `"a\r\nX: y"`, "E"},
		{parameter{}, `"a\u007f"`, "E"},
		{parameter{}, `["a\nb"]`, "E"},
		{parameter{}, `["a,b"]`, "E"},
		{parameter{}, `[["a"]]`, "E"},
		{parameter{}, `{"a=":1}`, "E"},
	}
	for _, tt := range tests {
		got, err := headerText(&tt.param, tree(t, tt.value))
		if err != nil {
			got = "E"
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q (%v)", tt.value, got, tt.want, err)
		}
	}
}

// FuzzBuild puts any text and any JSON value into every place of a request: it must not
// panic, and the result must be a URL with the template's segments whose path has only
// one reading.
func FuzzBuild(f *testing.F) {
	f.Add("a", `{"x":[1,2],"y":"z"}`)
	f.Add("..", `"../.."`)
	f.Add("%2f\n/é\\", `[".", "", null]`)
	f.Add("?q#f&x=y;z", `{"key":{"a":[{"b":1}]}}`)
	m := manifest(f, "http://api.example", `{"method":"POST","server":"SERVER/v1","path":"/s/{simple}/l/{label}/m/{matrix}/j/{json}.x/{reserved}",
		"parameters":[{"name":"simple","in":"path"},{"name":"label","in":"path","style":"label","explode":true},
		{"name":"matrix","in":"path","style":"matrix","explode":true},{"name":"json","in":"path","content":"application/json"},
		{"name":"reserved","in":"path","allow_reserved":true,"style":"pipeDelimited","item_styles":["simple"]},
		{"name":"form","in":"query","explode":true},{"name":"space","in":"query","style":"spaceDelimited"},
		{"name":"pipe","in":"query","style":"pipeDelimited"},{"name":"deep","in":"query","style":"deepObject"},
		{"name":"raw","in":"query","allow_reserved":true,"allow_empty":true},{"name":"lists","in":"query","style":"tabDelimited","item_styles":["simple","pipeDelimited"]},
		{"name":"text","in":"query","content":"text/plain"},{"name":"fc","in":"query","content":"application/x-www-form-urlencoded"},
		{"name":"X-H","arg":"header","in":"header"},{"name":"X-P","arg":"piped","in":"header","style":"pipeDelimited","explode":true,"item_styles":["simple"]},
		{"name":"X-J","arg":"hjson","in":"header","content":"application/json"},
		{"name":"c","arg":"cookie","in":"cookie"},{"name":"rc","arg":"rawcookie","in":"cookie","style":"cookie","explode":true}],
		"body":{"arg":"body","content_type":"application/x-www-form-urlencoded"}}`)
	b, faults := parse(m)
	if len(faults) > 0 {
		f.Fatal(faults)
	}
	f.Fuzz(func(t *testing.T, text, raw string) {
		v, err := parseTree(raw)
		if err != nil {
			v = text
		}
		base := func() map[string]any {
			return map[string]any{"simple": "s", "label": "l", "matrix": "m", "json": "j", "reserved": "r"}
		}
		for _, name := range []string{"simple", "label", "matrix", "json", "reserved", "form", "space", "pipe", "deep", "raw", "lists", "text", "fc", "header", "piped", "hjson", "cookie", "rawcookie", "body"} {
			for _, value := range []any{text, v} {
				a := base()
				a[name] = value
				before := canon.Hash(a)
				r, err := b.build(&toolkeep.Execution{Args: a, Credentials: []toolkeep.Credential{
					{Spec: toolkeep.AuthSpec{Type: "api_key", In: "query", Name: "key"}, Value: "secret"}}})
				if canon.Hash(a) != before {
					t.Fatal("the arguments were modified")
				}
				if err != nil {
					if !err.NothingSent {
						t.Fatalf("NothingSent is not set: %v", err)
					}
					continue
				}
				u, perr := url.Parse(r.url.String())
				if perr != nil {
					t.Fatalf("%s = %#v: %v", name, value, perr)
				}
				if u.Host != "api.example" || u.Fragment != "" || strings.Count(u.EscapedPath(), "/") != 10 {
					t.Fatalf("%s = %#v leads to %s", name, value, u)
				}
				for seg := range strings.SplitSeq(u.EscapedPath()[1:], "/") {
					if plain, _ := url.PathUnescape(seg); seg == "" || plain == "." || plain == ".." {
						t.Fatalf("%s = %#v makes the segment %q", name, value, seg)
					}
				}
				q, perr := url.ParseQuery(u.RawQuery)
				if perr != nil || len(q["key"]) != 1 || q.Get("key") != "secret" {
					t.Fatalf("%s = %#v makes the query %s (%v)", name, value, u.RawQuery, perr)
				}
				for h, values := range r.header {
					if !egress.IsToken(h) || !validHeaderValue(values[0]) {
						t.Fatalf("%s = %#v makes the header %q: %q", name, value, h, values)
					}
				}
			}
		}
	})
}
