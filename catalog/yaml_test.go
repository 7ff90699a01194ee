package catalog

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

func TestYAMLDocument(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"plain", "a: 1\nb: [x, 'y', true, null, ~]\n", `{"a":1,"b":["x","y",true,null,null]}`},
		{"exact numbers", "a: 9007199254740993\nb: 0.10\nc: -1e400\nd: 12345678901234567890123", `{"a":9007199254740993,"b":0.10,"c":-1e400,"d":12345678901234567890123}`},
		{"YAML numbers", "a: 0x1F\nb: 0o17\nc: 1_000\nd: +5\ne: .5\nf: 1.", `{"a":31,"b":15,"c":1000,"d":5,"e":0.5,"f":1.0}`},
		{"strings that look otherwise", "a: yes\nb: 2026-01-02\nc: '1'\nd: 1.2.3", `{"a":"yes","b":"2026-01-02","c":"1","d":"1.2.3"}`},
		{"number keys", "200: ok\n", `{"200":"ok"}`},
		{"alias", "a: &x {k: 1}\nb: *x", `{"a":{"k":1},"b":{"k":1}}`},
		{"merge", "a: &x {k: 1, l: 2}\nb:\n  <<: *x\n  l: 3", `{"a":{"k":1,"l":2},"b":{"k":1,"l":3}}`},
		{"merge list", "a: &x {k: 1}\nb: &y {k: 2, m: 3}\nc:\n  <<: [*x, *y]", `{"a":{"k":1},"b":{"k":2,"m":3},"c":{"k":1,"m":3}}`},
		{"JSON", `{"a": {"b": [1, "x\u00e9"]}}`, `{"a":{"b":[1,"xé"]}}`},
		{"block text", "a: |\n  one\n  two\n", `{"a":"one\ntwo\n"}`},
		{"empty documents around", "---\n---\na: 1\n---\n", `{"a":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ManifestsFromYAML([]byte(c.yaml))
			if err != nil || len(got) != 1 {
				t.Fatalf("%s, %v", got, err)
			}
			if string(got[0]) != c.want {
				t.Errorf("got  %s\nwant %s", got[0], c.want)
			}
		})
	}
}

func TestManifestsFromYAML(t *testing.T) {
	got, err := ManifestsFromYAML([]byte("a: 1\n---\nb: 2\n"))
	if err != nil || len(got) != 2 || string(got[1]) != `{"b":2}` {
		t.Errorf("%s %v", got, err)
	}
	if got, err := ManifestsFromYAML(nil); err != nil || len(got) != 0 {
		t.Errorf("%s %v", got, err)
	}
}

func TestManifestsFromYAMLRefuses(t *testing.T) {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		prev, here := string(rune('0'+i)), string(rune('1'+i))
		bomb += "a" + here + ": &a" + here + " [" + strings.TrimSuffix(strings.Repeat("*a"+prev+",", 10), ",") + "]\n"
	}
	for _, c := range []struct{ name, yaml, says string }{
		{"duplicate key", "a: 1\na: 2", "line 2, column 1"},
		{"duplicate after text", "1: x\n'1': y", `"1"`},
		{"alias bomb", bomb, "200000 values"},
		{"alias of itself", "a: &x [*x]", ""},
		{"infinity", "a: .inf", "infinities"},
		{"huge exponent", "a: 70E020000000000000000000", "9999"},
		{"NUL", `a: "\0"`, "line 1, column 4"},
		{"leading zero", "a: 0123", "leading zeros"},
		{"tag", "a: !secret x", "line 1, column 4: the tag"},
		{"binary", "a: !!binary aGk=", "the tag"},
		{"key that is a list", "? [1, 2]\n: x", "key"},
		{"merge of a string", "<<: x", "merge"},
		{"not YAML", "a: [", ""},
		{"second document", "a: 1\n---\nb: .nan", "document 2"},
		{"deep", strings.Repeat("[", 100) + strings.Repeat("]", 100), "64 levels"},
		{"long number", "a: " + strings.Repeat("1", 200), "128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ManifestsFromYAML([]byte(c.yaml))
			e := wantCode(t, err, toolkeep.InvalidManifest)
			if !strings.Contains(e.Message, c.says) {
				t.Errorf("%q is not in %q", c.says, e.Message)
			}
		})
	}
}

func FuzzManifestFromYAML(f *testing.F) {
	for _, s := range []string{"a: 1\nb: [x]", "a: &x {k: *x}", "<<: {a: 1}", "- 0x_\n- 1__0\n- -.5e3", "? &k a\n: *k", "a: !!int ''", "\xff", "---\n...\n--- 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := ManifestsFromYAML(data)
		if err != nil {
			faultsOf(t, err)
			return
		}
		for _, doc := range all {
			if _, err := canon.Parse(doc, canon.Limits{Bytes: 1 << 30, Depth: 100, Properties: 1 << 30, Elements: 1 << 30}); err != nil {
				t.Errorf("%q becomes %s: %v", data, doc, err)
			}
		}
	})
}
