package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// TestReaderFindsWhatCleanFinds: wherever a stream is cut, its secrets are removed as from the whole text.
func TestReaderFindsWhatCleanFinds(t *testing.T) {
	const secret, own = `p@ss/w0rd +"é\&`, "Zq7-own-value"
	of := redact.NewRedactor(nil)
	defer of.Hold(redact.AllTenants, secret)()
	defer of.Hold(redact.Scope{Tenant: "t", Person: "ada"}, own)()
	quoted, _ := json.Marshal(secret)
	forms := []string{secret, own, string(quoted), url.QueryEscape(secret), hex.EncodeToString([]byte(secret)),
		base64.StdEncoding.EncodeToString([]byte("user:" + secret)), wrapped(base64.StdEncoding.EncodeToString([]byte(secret)), 6, "\r\n"),
		"Authorization: Bearer abcdefgh12345678abcdefgh", "sk-live-1234567890abcdefgh", "postgres://u:hunter2hunter@db/x",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk", "AKIAIOSFODNN7EXAMPLE",
		"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\nAAAA\n-----END PRIVATE KEY-----"}
	fillers := []string{"word ", "\n", `\`, `\n`, "%", "%41", "+", "&amp;", "é", "\x00", "\xff\xfe", "{\"a\": 1}", "_", "-", "Bearer ", "sk-", "://"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var b strings.Builder
		for range 200 + r.IntN(200) {
			if r.IntN(12) == 0 {
				b.WriteString(" " + forms[r.IntN(len(forms))] + " ")
			} else {
				b.WriteString(fillers[r.IntN(len(fillers))])
			}
		}
		c := of.For(&toolkeep.Principal{Tenant: "t", Subject: "ada"})
		text := b.String()
		want := c.Clean(text)
		from := io.Reader(strings.NewReader(text))
		if r.IntN(2) == 0 {
			from = iotest.DataErrReader(iotest.HalfReader(from))
		}
		got, err := io.ReadAll(c.ReaderOf(from, 100+r.IntN(400), 400))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Fatalf("the stream gave\n%q\nof\n%q\nnot\n%q", got, text, want)
		}
	}
	c := of.For(&toolkeep.Principal{Tenant: "t", Subject: "ada"})
	if _, err := io.ReadAll(c.Reader(strings.NewReader("x " + own))); err != nil || !c.TookPersonal() {
		t.Errorf("a person's value in a stream: %v, %v", c.TookPersonal(), err)
	}
}

// TestReaderOfTokensWithoutEnd: of a token that is longer than the windows no part is given.
func TestReaderOfTokensWithoutEnd(t *testing.T) {
	of := redact.NewRedactor(nil)
	defer of.Hold(redact.AllTenants, "a!b?c")()
	c := of.For(&toolkeep.Principal{Tenant: "t"})
	for name, x := range map[string]struct{ head, part, tail string }{
		"a key":             {"key: ", "sk-1" + strings.Repeat("Secret", 500), ", and more"},
		"a bearer token":    {"x ", "Bearer 1" + strings.Repeat("Secret", 500), ", and more"},
		"ends in the reach": {"x ", "sk-1" + strings.Repeat("S", 150), ", and more"},
		"at the end":        {"x ", "sk-1" + strings.Repeat("Secret", 500), ""},
		"a repeated value":  {"x ", strings.Repeat("a!b?c", 500), ", and more"},
	} {
		got, err := io.ReadAll(c.ReaderOf(strings.NewReader(x.head+x.part+x.tail), 100, 60))
		text := string(got)
		if err != nil || !strings.HasPrefix(text, x.head) || !strings.HasSuffix(text, x.tail) || !strings.Contains(text, redact.Marker) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if left := strings.ReplaceAll(text[len(x.head):len(text)-len(x.tail)], redact.Marker, ""); strings.TrimLeft(left, "Bear ") != "" {
			t.Errorf("%s: %q was given", name, left)
		}
	}
}

// TestReaderOfBrokenStreams: what came before the fault and was not looked at completely is not given.
func TestReaderOfBrokenStreams(t *testing.T) {
	broken := errors.New("broken")
	c := redact.NewRedactor(nil).For(&toolkeep.Principal{Tenant: "t"})
	got, err := io.ReadAll(c.Reader(io.MultiReader(strings.NewReader("sk-123"), iotest.ErrReader(broken))))
	if len(got) != 0 || !errors.Is(err, broken) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := io.ReadAll(c.Reader(strings.NewReader(""))); len(got) != 0 || err != nil {
		t.Errorf("an empty stream: %q, %v", got, err)
	}
}
