package redact

import (
	"reflect"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
)

func allKinds(t testing.TB) Personal {
	t.Helper()
	all, err := PersonalOf(PersonalKinds)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPersonal(t *testing.T) {
	all := allKinds(t)
	for text, want := range map[string]string{
		"":                                  "",
		"nothing of 2026-11-30T10:20:30Z":   "nothing of 2026-11-30T10:20:30Z",
		"write to ann.b+x@mail.example.com": "write to [email]",
		"<ann@example.org>, bob@example.co.uk; x":             "<[email]>, [email]; x",
		"ann@localhost and @ann and a@b.c":                    "ann@localhost and @ann and a@b.c",
		"ümläut@exämple.de.":                                  "[email].",
		"card 4111 1111 1111 1111!":                           "card [card]!",
		"4111-1111-1111-1111, 378282246310005":                "[card], [card]",
		"order 4111111111111112":                              "order 4111111111111112", // wrong by Luhn's rule
		"0000000000000000 00000000000000000000000000000000":   "0000000000000000 00000000000000000000000000000000",
		"id4111111111111111":                                  "id4111111111111111",
		"ssn 078-05-1120":                                     "ssn [ssn]",
		"000-12-3456, 666-12-3456, 1-078-05-1120x":            "000-12-3456, 666-12-3456, 1-078-05-1120x",
		"DE89 3704 0044 0532 0130 00 and":                     "[iban] and",
		"GB82WEST12345698765432 TODAY":                        "[iban] TODAY",
		"GB82 WEST 1234 5698 7654 32 PAID NOW":                "[iban] PAID NOW",
		"DE88 3704 0044 0532 0130 00":                         "DE88 3704 0044 0532 0130 00",
		"from 192.168.2.17.":                                  "from [ip].",
		"10.0.0.1:8080 and 1.2.3":                             "[ip]:8080 and 1.2.3",
		"999.1.1.1, v1.2.3.4.5":                               "999.1.1.1, v1.2.3.4.5",
		"[2001:db8::1]:443 fe80::1, std::io":                  "[[ip]]:443 [ip], std::io",
		"call +49 30 1234567 or +1 (212) 555-0123":            "call [phone] or [phone]",
		"(212) 555-0123, 212-555-0123, 212.555.0123":          "[phone], [phone], [phone]",
		"+12 and 555-0123":                                    "+12 and 555-0123",
		"4111111111111111 12/27 123":                          "[card] 12/27 123",
		"4111 1111 1111 1111 123":                             "[card] 123",
		"1-212-555-0123, 1 (212) 555-0123":                    "[phone], [phone]",
		"from 2001:db8::1: refused":                           "from [ip]: refused",
		`{"text":"Phone:\n+49 30 1234567\n4111111111111111"}`: `{"text":"Phone:\n[phone]\n[card]"}`,
		"ann@example.com, 4111111111111111":                   "[email], [card]",
	} {
		if got := all.Clean(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	mail, err := PersonalOf([]string{"email"})
	if got := mail.Clean("ann@example.com 4111111111111111 10.0.0.1"); err != nil || got != "[email] 4111111111111111 10.0.0.1" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := PersonalOf([]string{"email", "blood"}); err == nil || !strings.Contains(err.Error(), `"blood"`) {
		t.Error(err)
	}
}

func TestPersonalValue(t *testing.T) {
	tree, err := canon.Parse([]byte(`{"to":["ann@example.com",4111111111111111,12.5,true,null],"ann@example.com":{"n":41111111}}`), canon.Limits{Bytes: 1000, Depth: 10, Properties: 10, Elements: 10})
	if err != nil {
		t.Fatal(err)
	}
	before := string(canon.Append(nil, tree))
	if got := string(canon.Append(nil, allKinds(t).CleanValue(tree))); got != `{"[email]":{"n":41111111},"to":["[email]","[card]",12.5,true,null]}` {
		t.Error(got)
	}
	if string(canon.Append(nil, tree)) != before {
		t.Error("the value was changed")
	}
	if got := Personal(0).CleanValue(tree); !reflect.DeepEqual(got, tree) {
		t.Error(got)
	}
}

// FuzzPersonal: cleaning ends, and does not lengthen a text beyond its findings.
func FuzzPersonal(f *testing.F) {
	for _, s := range []string{"ann@example.com", "4111 1111 1111 1111", "DE89370400440532013000", "+49 30 1234567", "::1", "a@b.c@d.ee", "(212) 555-0123@x.yy"} {
		f.Add(s)
	}
	all := allKinds(f)
	f.Fuzz(func(t *testing.T, s string) {
		once := all.Clean(s)
		if len(once) > 4*len(s)+10 {
			t.Fatalf("%q became %q", s, once)
		}
	})
}

func BenchmarkPersonal(b *testing.B) {
	all := allKinds(b)
	for name, text := range map[string]string{
		"words":   strings.Repeat("The tool returned what the caller had asked for, in order. ", 35),
		"numbers": strings.Repeat(`{"id": 8273645, "at": "2026-11-30T10:20:30Z"}, `, 43),
		"digits":  strings.Repeat("1 ", 1000),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				all.Clean(text)
			}
		})
	}
}
