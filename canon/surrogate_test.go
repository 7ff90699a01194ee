package canon

import "testing"

func TestMendSurrogates(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{`"plain"`, `"plain"`},
		{`"\ud83d\ude00"`, `"\ud83d\ude00"`},
		{`"\uD83D"`, `"\ufffd"`},
		{`"\ude00"`, `"\ufffd"`},
		{`"\ud83d\ud83d\ude00"`, `"\ufffd\ud83d\ude00"`},
		{`"\ud83dx\ude00"`, `"\ufffdx\ufffd"`},
		{`"\\ud83d"`, `"\\ud83d"`},
		{`"\\\ud83d"`, `"\\\ufffd"`},
		{`"\u00e9\n"`, `"\u00e9\n"`},
		{`"\ud83`, `"\ud83`},
		{`\`, `\`},
		{`"\ud83d\`, `"\ufffd\`},
	} {
		got := []byte(c.in)
		MendSurrogates(got)
		if string(got) != c.out {
			t.Errorf("%s becomes %s, want %s", c.in, got, c.out)
		}
	}
}

func FuzzMendSurrogates(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83d\ude00 \ud83d"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := len(data)
		own := append([]byte(nil), data...)
		MendSurrogates(own)
		if len(own) != before {
			t.Fatal("the length changed")
		}
		if _, err := Parse(data, Limits{}); err == nil && string(own) != string(data) {
			t.Fatalf("%q was readable and became %q", data, own)
		}
	})
}
