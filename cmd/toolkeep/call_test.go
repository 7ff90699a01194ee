package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep/canon"
)

func noSchema() *callSchema { return nil }

func TestParameters(t *testing.T) {
	dir := t.TempDir()
	text, binary := filepath.Join(dir, "text"), filepath.Join(dir, "binary")
	for name, content := range map[string]string{text: "one\ntwo", binary: "\xff\xfe"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name  string
		text  string
		pairs []string
		want  string // "" is a usage error with the text of fault
		fault string
	}{
		{"nothing", "", nil, `{}`, ""},
		{"text stays text", "", []string{"n=5", "b=true", "s=a=b", "e="}, `{"b":"true","e":"","n":"5","s":"a=b"}`, ""},
		{"typed", "", []string{"n:=9007199254740993", "x:=1e400", "l:=[1]", "z:=null"}, `{"l":[1],"n":9007199254740993,"x":1e400,"z":null}`, ""},
		{"a name with a colon", "", []string{"a:b=1"}, `{"a:b":"1"}`, ""},
		{"repeated", "", []string{"l=1", "l=2", "l:=3"}, `{"l":["1","2",3]}`, ""},
		{"repeated lists stay lists", "", []string{"l:=[1]", "l:=[2]"}, `{"l":[[1],[2]]}`, ""},
		{"repeated null", "", []string{"l:=null", "l=a"}, `{"l":[null,"a"]}`, ""},
		{"file", "", []string{"t=@" + text}, `{"t":"one\ntwo"}`, ""},
		{"at alone", "", []string{"t=@"}, `{"t":"@"}`, ""},
		{"object", ` {"b": 1.0, "a": "ü"} `, nil, `{"a":"ü","b":1.0}`, ""},
		{"binary file", "", []string{"t=@" + binary}, "", "not UTF-8"},
		{"no file", "", []string{"t=@" + dir + "/none"}, "", `write 't:="@…"'`},
		{"folder", "", []string{"t=@" + dir}, "", "directory"},
		{"endless file", "", []string{"t=@/dev/zero"}, "", "over 16 MiB"},
		{"no key", "", []string{"=x"}, "", "write key=value"},
		{"no typed key", "", []string{":=1"}, "", "write key=value"},
		{"no value", "", []string{"text"}, "", "write key=value"},
		{"not JSON", "", []string{"n:=five"}, "", "for text write n=five"},
		{"object without --json", "", []string{`{"a":1}`}, "", "put --json before it"},
		{"array", `[1]`, nil, "", "E3312"},
		{"names twice", `{"a":1,"a":2}`, nil, "", "E3311"},
		{"bad UTF-8", "", []string{"a=\xff"}, "", "not UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parametersOf(tt.text, "the object after --json", tt.pairs, noSchema)
			if string(got) != tt.want && tt.want != "" {
				t.Errorf("got %s, %v", got, err)
			}
			if tt.want != "" {
				return
			}
			var f *failure
			if !errors.As(err, &f) || f.code != exitUsage || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("got %s, %v; want a usage error with %q", got, err, tt.fault)
			}
		})
	}
}

// FuzzArgument: an accepted argument becomes an object with one property, and text stays exact.
func FuzzArgument(f *testing.F) {
	for _, s := range []string{"a=b", "a:=1", "a:=[", "a=@", "=", ":=", "a:b=c", `{"a":1}`, "ü=ü", "a=\xff", "a\xff=b", "a:={\"b\":1,\"b\":2}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pair string) {
		if strings.Contains(pair, "=@") || strings.Contains(pair, "\x00") {
			return // would read local files; no process argument contains a NUL
		}
		raw, err := parametersOf("", "", []string{pair}, noSchema)
		if err != nil {
			return
		}
		obj, err := canon.ParseObject(raw, canon.Limits{Bytes: 64 << 20})
		if err != nil || len(obj) != 1 {
			t.Fatalf("%q became %s: %v", pair, raw, err)
		}
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasSuffix(name, ":") {
			return
		}
		if !utf8.ValidString(pair) || obj[name] != value {
			t.Fatalf("%q became %s", pair, raw)
		}
	})
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "plain", "a b", "it's", `"$HOME" \ ` + "`x`", "ü\n", "data/dir", "~", "*", "#"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q quoted as %s is %q to a shell: %v", s, quote(s), out, err)
		}
	}
}

func TestSplitRef(t *testing.T) {
	for ref, want := range map[string][2]string{"a.b": {"a.b", ""}, "a.b@^1": {"a.b", "^1"}, "a.b@>=1 <2": {"a.b", ">=1 <2"}, "": {}, "@1": {}, "a.b@": {}} {
		tool, rng, err := splitRef(ref)
		if (err == nil) != (want[0] != "") || [2]string{tool, rng} != want {
			t.Errorf("%q: %q %q %v", ref, tool, rng, err)
		}
	}
}

// TestReplaceFile: an output path that is a special file stays one.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "out")
	for _, text := range []string{"first", "second"} {
		if _, err := replaceFile(name, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(name); err != nil || string(raw) != text {
			t.Errorf("%q %v", raw, err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("out", link); err != nil {
		t.Fatal(err)
	}
	if _, err := replaceFile(link, strings.NewReader("thi")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().IsRegular() {
		t.Errorf("%v %v", info, err)
	}
	if raw, err := os.ReadFile(name); err != nil || string(raw) != "thi" {
		t.Errorf("%q %v", raw, err)
	}
	if _, err := replaceFile(os.DevNull, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Fatalf("%v %v", info, err)
	}
}
