//go:build !race

package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"runtime"
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
		"AIza" + strings.Repeat("Sy-9_", 7), "AIza" + strings.Repeat("Sy-9_", 8), "ya29.a0AfH6SMB-x_yzABCDEFGHIJ", "xoxb-1234567890-abcdefghijKLMN",
		"AccountKey=" + strings.Repeat("aB3+/", 17) + "a==;EndpointSuffix=x", "SharedAccessKey=" + strings.Repeat("aB3%2F", 15) + "%3D",
		"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\nAAAA\n-----END PRIVATE KEY-----"}
	fillers := []string{"word ", "\n", `\`, `\n`, "%", "%41", "+", "&amp;", "é", "\x00", "\xff\xfe", "{\"a\": 1}", "_", "-", "Bearer ", "sk-", "://", "AIza", "ya29.", "xoxb-", "AccountKey="}
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
	long := strings.Repeat("Secret", 500)
	for name, x := range map[string]struct{ head, part, tail string }{
		"a key":                {"key: ", "sk-1" + long, ", and more"},
		"a key, digit at end":  {"key: ", "sk-" + long + "1", " here are words"},
		"a key before words":   {"key: ", "sk-1" + long, " here are words\nand lines"},
		"a tk key":             {"key: ", "tk_" + long, "/here are words"},
		"a signing secret":     {"key: ", "tks_" + long, "/here are words"},
		"a GitHub key":         {"key: ", "ghp_" + long, "-here are words"},
		"an AWS key":           {"SecretAccessKey: ", long, "-here are words"},
		"a Google token":       {"x ", "ya29." + long, ", and more"},
		"a Slack token":        {"x ", "xoxb-1" + long, " here are words"},
		"Slack, digit at end":  {"x ", "xoxp-" + long + "1", ", and more"},
		"an Azure key":         {"AccountKey=", long, ";EndpointSuffix=x"},
		"an Azure bus key":     {"SharedAccessKey=", long + "%3D", " here are words"},
		"a bearer token":       {"x ", "Bearer 1" + long, ", and more"},
		"a bearer, then words": {"x ", "Bearer 1" + long, " here are words"},
		"a basic credential":   {"x ", "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+long)), " here are words"},
		"a token's header":     {"x ", "eyJ" + long + ".eyJ0123456789.0123456789", " here are words"},
		"a token's claims":     {"x ", "eyJ0123456789.eyJ" + long + ".0123456789", " here are words"},
		"a token's signature":  {"x ", "eyJ0123456789.eyJ0123456789." + long, " here are words"},
		"a password":           {"postgres://", "u:" + long + "@db", "/x has words"},
		"a password, escaped":  {`"postgres:\/\/`, "u:" + long + "@db", `\/x" has words`},
		"a user":               {"postgres://", long + ":secret@db", "/x has words"},
		"a private key":        {"x ", "-----BEGIN PRIVATE KEY-----\n" + long + "\n", "-----END PRIVATE KEY-----\nhere are words"},
		"ends in the reach":    {"x ", "sk-1" + strings.Repeat("S", 150), ", and more"},
		"at the end":           {"x ", "sk-1" + long, ""},
		"a repeated value":     {"x ", strings.Repeat("a!b?c", 500), ", and more"},
	} {
		for reach := 60; reach < 70; reach++ {
			got, err := io.ReadAll(c.ReaderOf(strings.NewReader(x.head+x.part+x.tail), 100, reach))
			text := string(got)
			left, ok := strings.CutPrefix(text, x.head)
			if ok {
				left, ok = strings.CutSuffix(left, x.tail)
			}
			if left = strings.TrimPrefix(strings.TrimPrefix(left, "Bearer "), "Basic "); err != nil || !ok || left != redact.Marker {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
}

// TestReaderOfTokensOverAWindow: a token of the longest windows is removed, as Clean removes it, and the words after it
// are given.
func TestReaderOfTokensOverAWindow(t *testing.T) {
	c := redact.NewRedactor(nil).For(&toolkeep.Principal{Tenant: "t"})
	long := strings.Repeat("a", 700_000)
	for name, text := range map[string]string{
		"a key":    "x sk-1" + long + " here are words",
		"a token":  "x eyJ" + long + ".b0123456789.c0123456789 here are words",
		"an URL":   "x postgres://u:" + long + "@db/x here are words",
		"no token": "x " + long + " here are words",
	} {
		got, err := io.ReadAll(c.Reader(strings.NewReader(text)))
		if text := string(got); err != nil || !strings.HasSuffix(text, " here are words") || name != "no token" && len(text) > 100 {
			t.Errorf("%s: %d bytes, …%q, %v", name, len(text), text[max(0, len(text)-100):], err)
		}
		if name == "no token" && string(got) != text {
			t.Errorf("%s: %d bytes of %d", name, len(got), len(text))
		}
	}
}

// TestReaderTakesLittleMemory: what a search takes is bounded, whatever the text; and the reader makes no new buffers.
func TestReaderTakesLittleMemory(t *testing.T) {
	of := redact.NewRedactor(nil)
	defer of.Hold(redact.AllTenants, "p@ss/w0rd +x")()
	c := of.For(&toolkeep.Principal{Tenant: "t"})
	for part, most := range map[string]uint64{
		"word ": 1 << 10, "+": 16 << 20, "%41": 16 << 20, `\`: 16 << 20, `\n`: 32 << 20, "a line\n": 16 << 20, "&#65;": 20 << 20, "+a%41\n": 32 << 20,
	} {
		const size = 2 << 20
		rest := io.LimitReader(strings.NewReader(strings.Repeat(part, size/len(part)+1)), size)
		var last, worst uint64
		var n int
		r := c.Reader(readerFunc(func(b []byte) (int, error) {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if n++; n > 3 { // the buffers are there
				worst = max(worst, m.TotalAlloc-last)
			}
			k, err := rest.Read(b)
			runtime.ReadMemStats(&m)
			last = m.TotalAlloc
			return k, err
		}))
		buf := make([]byte, 32<<10)
		var err error
		for err == nil {
			_, err = r.Read(buf)
		}
		t.Logf("%q: %d KiB in a window", part, worst>>10)
		if err != io.EOF || worst > most {
			t.Errorf("%q: a window takes %d bytes, %v", part, worst, err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

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
