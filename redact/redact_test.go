package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/toolkeep/toolkeep/redact"
)

func TestCleanFindsEveryDisguise(t *testing.T) {
	const secret = `p@ss/w0rd +"é\&`
	s := redact.NewSecrets(nil)
	defer s.Hold(secret)()
	quoted, _ := json.Marshal(secret)
	twice, _ := json.Marshal(string(quoted))
	ascii := `p@ss\/w0rd +\"\u00E9\\\u0026`
	every := ""
	for _, c := range []byte("p@ss/w0rd +\"") {
		every += fmt.Sprintf(`\u%04x`, c)
	}
	every += `\u00e9\\&`
	std, web := base64.StdEncoding, base64.URLEncoding
	for name, text := range map[string]string{
		"raw":                 secret,
		"JSON":                string(quoted),
		"JSON in JSON":        string(twice),
		"JSON ASCII":          ascii,
		"JSON all escaped":    every,
		"query":               url.QueryEscape(secret),
		"path":                url.PathEscape(secret),
		"query twice":         url.QueryEscape(url.QueryEscape(secret)),
		"query, lower":        strings.ToLower(url.QueryEscape(secret)),
		"query in JSON":       `"` + strings.ReplaceAll(url.QueryEscape(secret), "%", `\u0025`) + `"`,
		"base64":              std.EncodeToString([]byte(secret)),
		"base64 raw":          base64.RawStdEncoding.EncodeToString([]byte(secret)),
		"base64 URL":          web.EncodeToString([]byte(secret)),
		"base64 user:":        std.EncodeToString([]byte("user:" + secret)),
		"base64 u:":           std.EncodeToString([]byte("u:" + secret)),
		"base64 between":      std.EncodeToString([]byte("a" + secret + "b")),
		"base64 PHP":          strings.ReplaceAll(std.EncodeToString([]byte("u:"+secret)), "/", `\/`),
		"base64 in a query":   url.QueryEscape(std.EncodeToString([]byte("user:" + secret))),
		"base64 in a path":    url.PathEscape(std.EncodeToString([]byte("user:" + secret))),
		"hex":                 hex.EncodeToString([]byte(secret)),
		"HEX":                 strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"at the end of a key": "key=" + secret,
		"CSV":                 `"` + strings.ReplaceAll(secret, `"`, `""`) + `"`,
		"CSV in JSON":         `\"` + strings.NewReplacer(`"`, `\"\"`, `\`, `\\`).Replace(secret) + `\"`,
		"base64 in lines":     wrapped(std.EncodeToString([]byte("user:"+secret)), 7, "\n"),
		"base64 in MIME":      wrapped(std.EncodeToString([]byte("u:"+secret)), 5, "\r\n"),
		"base64, indented":    wrapped(web.EncodeToString([]byte(secret)), 4, "\n    "),
		"base64 lines, JSON":  wrapped(std.EncodeToString([]byte("ab"+secret)), 6, `\n`),
		"base64 lines, query": url.QueryEscape(wrapped(std.EncodeToString([]byte("ab"+secret)), 6, "\r\n")),
		"base64 lines, HTML":  wrapped(std.EncodeToString([]byte(secret)), 6, "&#10;"),
		"hex in lines":        wrapped(hex.EncodeToString([]byte(secret)), 10, "\n"),
		"HTML":                html.EscapeString(secret),
		"HTML by name":        strings.NewReplacer("&", "&amp;", `"`, "&quot;", "é", "&eacute;", "+", "&plus;").Replace(secret),
		"XML":                 strings.NewReplacer("&", "&#38;", `"`, "&#x22;", "é", "&#xE9;", "/", "&#47;").Replace(secret),
		"HTML twice":          html.EscapeString(html.EscapeString(secret)),
		"HTML in JSON":        strings.ReplaceAll(strings.ReplaceAll(html.EscapeString(secret), `\`, `\\`), "&", `\u0026`),
		"HTML, no semicolons": strings.NewReplacer("&", "&amp", `"`, "&#34", "/", "&#x2f;").Replace(secret),
		"HTML, capitals":      strings.NewReplacer("&", "&AMP;", `"`, "&QUOT;").Replace(secret),
		"HTML beside others":  "a & b &lt; &unknown; &; &amp " + html.EscapeString(secret),
	} {
		t.Run(name, func(t *testing.T) {
			got := s.Clean("before " + text + " after")
			if !strings.Contains(got, redact.Marker) {
				t.Fatalf("not found in %s", text)
			}
			if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
				t.Errorf("too much was taken: %s", got)
			}
			if strings.Contains(strings.ToLower(got), "w0rd") {
				t.Errorf("part of it is left: %s", got)
			}
		})
	}
}

// wrapped breaks text into lines.
func wrapped(text string, width int, end string) string {
	var b strings.Builder
	for i := 0; i < len(text); i += width {
		if i > 0 {
			b.WriteString(end)
		}
		b.WriteString(text[i:min(i+width, len(text))])
	}
	return b.String()
}

// TestQuotesAndLines: a secret with quotes or several lines is found however a table, a statement or an editor writes
// it, and nothing but it is taken.
func TestQuotesAndLines(t *testing.T) {
	const lines = "first \"line\"\nit's the second\n\tand the third\n-----"
	single := strings.NewReplacer("\n\t", "\n", "\t", "")
	for name, end := range map[string]string{"as it is": "\n", "Windows": "\r\n", "old Mac": "\r", "indented": "\n      ", "empty lines": "\n\n",
		"none": "", "JSON": `\n`, "JSON, Windows": `\r\n`, "URL": "%0D%0A", "HTML": "&#13;&#10;"} {
		for quoting, quoted := range map[string]string{"plain": lines, "CSV": strings.ReplaceAll(lines, `"`, `""`),
			"SQL": strings.ReplaceAll(lines, `'`, `''`), "both": strings.NewReplacer(`'`, `''`, `"`, `""`).Replace(lines)} {
			s := redact.NewSecrets(nil)
			s.Hold(lines)
			text := "<\n" + strings.ReplaceAll(single.Replace(quoted), "\n", end) + "\n>"
			if got := s.Clean(text); got != "<\n[REDACTED]\n>" {
				t.Errorf("%s, %s: %q becomes %q", name, quoting, text, got)
			}
		}
	}
	s := redact.NewSecrets(nil)
	s.Hold("two\nlines", `it's`, "a\nb\nc\nd", "x\ny\nz")
	for text, want := range map[string]string{
		"two lines, twolines":    "[REDACTED], [REDACTED]",
		`it\'s it''s its it"s`:   `[REDACTED] [REDACTED] its it"s`,
		"tw\no\nlin\nes":         "[REDACTED]", // pieces of a value of lines
		"i\nt's":                 "i\nt's",     // a value of one line is not looked for in several
		"a b c d x y z xyz abcd": "[REDACTED] [REDACTED] xyz [REDACTED]",
	} {
		if got := s.Clean(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestCleanKeepsJSONWhole(t *testing.T) {
	for _, c := range []struct{ secret, text, want string }{
		{"nabcd", `{"a":"x\nabcd"}`, `{"a":"x[REDACTED]"}`},
		{"00e9secret", `{"a":"\u00e9secret"}`, `{"a":"[REDACTED]"}`},
		{`abcd\`, `{"a":"abcd\\"}`, `{"a":"[REDACTED]"}`},
		{`abcd\`, `{"a":"abcd\n"}`, `{"a":"[REDACTED]"}`},
		{"secret", `{"a":"\\secret"}`, `{"a":"\\[REDACTED]"}`},
		{`quo"te`, `{"a":"quo\"te","b":1}`, `{"a":"[REDACTED]","b":1}`},
		{"line\nbreak", `{"a":"line\nbreak"}`, `{"a":"[REDACTED]"}`},
	} {
		s := redact.NewSecrets(nil)
		s.Hold(c.secret)
		if got := s.Clean(c.text); got != c.want || !json.Valid([]byte(got)) {
			t.Errorf("%q in %s gives %s, want %s", c.secret, c.text, got, c.want)
		}
	}
}

func TestTokens(t *testing.T) {
	jwt := "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
	azure := strings.Repeat("aB3+/", 17) + "a=="
	s := redact.NewSecrets(nil)
	for _, c := range []struct{ in, want string }{
		{"Authorization: Bearer abc123def456", "Authorization: Bearer [REDACTED]"},
		{"bearer  mF_9.B5f-4.1JqM==", "bearer  [REDACTED]"},
		{`{"authorization":"BEARER aaaabbbbccccddddeeee"}`, `{"authorization":"BEARER [REDACTED]"}`},
		{"the bearer of good news, bearer authentication", "the bearer of good news, bearer authentication"},
		{"Basic dXNlcjpwYXNzd29yZA==", "Basic [REDACTED]"},
		{"Basic authentication is simple", "Basic authentication is simple"},
		{"key sk-proj-abcDEF1234567890xyz.", "key [REDACTED]."},
		{"task-force-1234567890123456", "task-force-1234567890123456"},
		{"sk-learn-compatible-estimator", "sk-learn-compatible-estimator"},
		{"ghp_" + strings.Repeat("a1", 18), "[REDACTED]"},
		{"x=github_pat_11ABCDEFG0abcdefghijkl_mnop&", "x=[REDACTED]&"},
		{"tk_live_0123456789abcdef", "[REDACTED]"},
		{"secret tks_0123456789ABCDEFabcdef, and tks_short", "secret [REDACTED], and tks_short"},
		{`"\ntks_0123456789abcdefXYZ"`, `"\n[REDACTED]"`},
		{"my_tks_0123456789abcdefXYZ", "my_tks_0123456789abcdefXYZ"},
		{`"\ntk_0123456789abcdefXYZ"`, `"\n[REDACTED]"`},
		{"q=%3Dtk_0123456789abcdefXYZ", "q=%3D[REDACTED]"},
		{"my_tk_0123456789abcdefXYZ and tk_short", "my_tk_0123456789abcdefXYZ and tk_short"},
		{"id AKIAIOSFODNN7EXAMPLE, ASIAIOSFODNN7EXAMPLE", "id [REDACTED], [REDACTED]"},
		{"XAKIAIOSFODNN7EXAMPLE AKIAIOSFODNN7EXAMPLES", "XAKIAIOSFODNN7EXAMPLE AKIAIOSFODNN7EXAMPLES"},
		{"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = [REDACTED]"},
		{`"SecretAccessKey":"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"`, `"SecretAccessKey":"[REDACTED]"`},
		{"AIza" + strings.Repeat("Sy-9_", 7) + " AIza" + strings.Repeat("Sy-9_", 8) + " AIzawa", "[REDACTED] AIza" + strings.Repeat("Sy-9_", 8) + " AIzawa"},
		{"ya29.a0AfH6SMB-x_yzABCDEFGHIJ and ya29.short", "[REDACTED] and ya29.short"},
		{"xoxb-1234567890-abcdefghijKLMN xoxo-gossip-girl-the-final-season1 xoxb-never-gonna-give-you-up", "[REDACTED] xoxo-gossip-girl-the-final-season1 xoxb-never-gonna-give-you-up"},
		{"AccountName=x;AccountKey=" + azure + ";EndpointSuffix=y", "AccountName=x;AccountKey=[REDACTED];EndpointSuffix=y"},
		{`{"c":"AccountKey=` + azure + `\nEndpointSuffix=y"}`, `{"c":"AccountKey=[REDACTED]\nEndpointSuffix=y"}`},
		{"SharedAccessKeyName=root;SharedAccessKey=" + azure, "SharedAccessKeyName=root;SharedAccessKey=[REDACTED]"},
		{"https://a.example/b?sv=2024&sig=" + strings.Repeat("aB3%2F", 9) + "%3D&se=1", "https://a.example/b?sv=2024&sig=" + strings.Repeat("aB3%2F", 9) + "%3D&se=1"}, // a link that a tool gives is to work
		{"token=" + jwt + ";", "token=[REDACTED];"},
		{"eyJust a word. And eyJanother.one", "eyJust a word. And eyJanother.one"},
		{"a " + pem + " b", "a [REDACTED] b"},
		{`"` + strings.ReplaceAll(pem, "\n", `\n`) + `"`, `"[REDACTED]"`},
		{`"-----BEGIN PRIVATE KEY-----\nMIIEow`, `"[REDACTED]`},
		{"-----BEGIN PUBLIC KEY-----\nMIIBIj\n-----END PUBLIC KEY-----", "-----BEGIN PUBLIC KEY-----\nMIIBIj\n-----END PUBLIC KEY-----"},
		{"postgres://app:hunter2@db.example.com:5432/x", "postgres://app:[REDACTED]@db.example.com:5432/x"},
		{`"https:\/\/u:p%40ss@example.com\/"`, `"https:\/\/u:[REDACTED]@example.com\/"`},
		{"https://example.com:8080/a@b http://user@example.com", "https://example.com:8080/a@b http://user@example.com"},
		{"https://u:[REDACTED]@example.com", "https://u:[REDACTED]@example.com"},
	} {
		got := s.Clean(c.in)
		if got != c.want {
			t.Errorf("%s\n gives %s\n want  %s", c.in, got, c.want)
		}
		if again := s.Clean(got); again != got {
			t.Errorf("cleaning twice: %s became %s", got, again)
		}
	}
}

// TestNoReferences: an ampersand without a reference removes nothing.
func TestNoReferences(t *testing.T) {
	s := redact.NewSecrets(nil)
	s.Hold("<hunter22")
	for text, want := range map[string]string{
		"keep & this &lt;hunter22 end":     "keep & this [REDACTED] end",
		"keep &this &lthunter22 &unknown;": "keep &this [REDACTED] &unknown;",
		"a&lt=1&#&#x&#60;hunter22&":        "a&lt=1&#&#x[REDACTED]&",
		"&#99999999999999999999;&#0;&#":    "&#99999999999999999999;&#0;&#",
	} {
		if got := s.Clean(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestCleanGivesItsInputWhereNothingIsFound(t *testing.T) {
	s := redact.NewSecrets(nil)
	s.Hold("hunter22")
	text := strings.Repeat(`plain text\n with_escapes 100% `, 20)
	if got := s.Clean(text); unsafe.StringData(got) != unsafe.StringData(text) {
		t.Error("the text was copied")
	}
	b := []byte(text)
	if got := s.CleanBytes(b); &got[0] != &b[0] {
		t.Error("the bytes were copied")
	}
	if got := s.CleanBytes(nil); got != nil {
		t.Error("nil became something")
	}
	v := map[string]any{"a": []any{"x", json.Number("1")}}
	if got := s.CleanValue(v); reflect.ValueOf(got).Pointer() != reflect.ValueOf(v).Pointer() {
		t.Error("the tree was copied")
	}
}

func TestCleanBytes(t *testing.T) {
	s := redact.NewSecrets(nil)
	s.Hold("hunter22")
	b := []byte("a hunter22 b")
	if got := string(s.CleanBytes(b)); got != "a [REDACTED] b" {
		t.Errorf("got %s", got)
	}
	if string(b) != "a hunter22 b" {
		t.Error("the input was modified")
	}
}

func TestCleanValue(t *testing.T) {
	s := redact.NewSecrets(nil)
	s.Hold("hunter22", "12345678")
	v := map[string]any{
		"plain": "x", "list": []any{"a hunter22", json.Number("12345678"), json.Number("5"), nil, true},
		"hunter22": map[string]any{"deep": `{"p":"hunter\u00322"}`}, "[REDACTED]": "kept",
	}
	want := map[string]any{
		"plain": "x", "list": []any{"a [REDACTED]", "[REDACTED]", json.Number("5"), nil, true},
		"[REDACTED]'": map[string]any{"deep": `{"p":"[REDACTED]"}`}, "[REDACTED]": "kept",
	}
	before := fmt.Sprint(v)
	if got := s.CleanValue(v); !reflect.DeepEqual(got, any(want)) {
		t.Errorf("got %v", got)
	}
	if fmt.Sprint(v) != before {
		t.Error("the tree was modified")
	}
}

func TestHoldLastsAMinutePastItsLastRelease(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := redact.NewSecrets(func() time.Time { return now })
	knows := func(v string) bool { return s.Clean(v) == redact.Marker }
	first := s.Hold("hunter22", "other-secret")
	second := s.Hold("hunter22")
	first()
	first() // a second release does nothing
	now = now.Add(59 * time.Second)
	if !knows("hunter22") || !knows("other-secret") {
		t.Fatal("forgotten too early")
	}
	now = now.Add(time.Second)
	if knows("other-secret") {
		t.Error("not forgotten after 60 s")
	}
	if !knows("hunter22") {
		t.Error("forgotten while it is held")
	}
	second()
	now = now.Add(30 * time.Second)
	third := s.Hold("hunter22")
	now = now.Add(time.Hour)
	if !knows("hunter22") {
		t.Error("holding it again did not count")
	}
	third()
	now = now.Add(61 * time.Second)
	if knows("hunter22") {
		t.Error("not forgotten in the end")
	}
	if n := s.Held(); n != 0 {
		t.Errorf("%d values are still in memory", n)
	}
}

func TestHoldIgnoresWhatTextIsFullOf(t *testing.T) {
	s := redact.NewSecrets(nil)
	s.Hold("", "abc", "  a \n", "REDACTED", "é€")
	const text = "abc REDACTED a é€"
	if got := s.Clean(text); got != text {
		t.Errorf("got %s", got)
	}
	s.Hold("line-end\n")
	if got := s.Clean("a line-end b"); got != "a [REDACTED] b" {
		t.Errorf("got %s", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	s := redact.NewSecrets(nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				secret := fmt.Sprintf("secret-%d-%d", i, j%17)
				release := s.Hold(secret, "shared-secret")
				text := "x " + secret + " y shared-secret z"
				if got := s.Clean(text); got != "x [REDACTED] y [REDACTED] z" {
					t.Errorf("got %s", got)
				}
				release()
			}
		})
	}
	wg.Wait()
}

// FuzzClean puts a secret into text in every encoding and looks for remains. The marker's own text is cut out
// first.
func FuzzClean(f *testing.F) {
	f.Add("hunter2!", "user:", ",")
	f.Add("a+b/c d=e", "x", "")
	f.Add(`q"\uo<te>`, "", "~~~")
	f.Add("päßwörd😀", "ab", "c")
	f.Add("\x00\xff\xfe\x01", "é", "é")
	f.Add("%41%42+%", "%", "+")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		secret = strings.TrimSpace(secret)
		if len([]rune(secret)) < 4 || strings.Contains(redact.Marker, secret) {
			return
		}
		s := redact.NewSecrets(nil)
		defer s.Hold(secret)()
		quoted, err := json.Marshal(secret)
		if err != nil {
			return
		}
		valid := strings.ToValidUTF8(secret, "") == secret
		joined := []byte(before + secret + after)
		forms := map[string]string{
			"raw":        secret,
			"query":      url.QueryEscape(secret),
			"path":       url.PathEscape(secret),
			"base64 std": base64.StdEncoding.EncodeToString(joined),
			"base64 url": base64.RawURLEncoding.EncodeToString(joined),
			"hex":        hex.EncodeToString([]byte(secret)),
			"HEX":        strings.ToUpper(hex.EncodeToString([]byte(secret))),
		}
		if valid {
			forms["JSON"] = string(quoted[1 : len(quoted)-1])
			forms["JSON slashes"] = strings.ReplaceAll(forms["JSON"], "/", `\/`)
		}
		for name, text := range forms {
			got := s.Clean("<" + text + ">")
			if !strings.Contains(got, redact.Marker) {
				t.Fatalf("%s: %q was not found in %q", name, secret, text)
			}
			for _, part := range strings.Split(got, redact.Marker) {
				if strings.Contains(part, text) || strings.Contains(part, secret) {
					t.Fatalf("%s: %q is left in %q", name, secret, got)
				}
			}
		}
		doc, err := json.Marshal(map[string]any{"a": before + secret, "b": []string{secret + after}})
		if err == nil && valid {
			if got := s.CleanBytes(doc); !json.Valid(got) && !digits(secret) {
				t.Fatalf("%q in %s leaves %s, which is not JSON", secret, doc, got)
			}
		}
	})
}

// digits reports whether the secret may occur in the document's own syntax.
func digits(s string) bool { return strings.ContainsAny(s, `"{}[]:,`) }

const sample = `{"id":"ord_10293","status":"shipped","customer":{"name":"Ada Lovelace","email":"ada@example.com","since":"2021-03-04T05:06:07Z"},` +
	`"note":"Leave it with the neighbour, please - nobody is at home before six","url":"https://example.com/orders/10293?view=full","total":294.98}` + "\n"

func BenchmarkCleanNothingHeld(b *testing.B) {
	s := redact.NewSecrets(nil)
	text := strings.Repeat(sample, 10)[:2048]
	b.SetBytes(2048)
	b.ReportAllocs()
	for b.Loop() {
		s.Clean(text)
	}
}

func BenchmarkCleanTwentyHeld(b *testing.B) {
	s := redact.NewSecrets(nil)
	for i := range 20 {
		s.Hold(fmt.Sprintf("secret-number-%d", i))
	}
	text := strings.Repeat(sample, 10)[:2048]
	b.SetBytes(2048)
	b.ReportAllocs()
	for b.Loop() {
		s.Clean(text)
	}
}

func BenchmarkCleanFound(b *testing.B) {
	s := redact.NewSecrets(nil)
	s.Hold("neighbour")
	text := strings.Repeat(sample, 10)[:2048]
	b.ReportAllocs()
	for b.Loop() {
		s.Clean(text)
	}
}

func BenchmarkCleanValue(b *testing.B) {
	s := redact.NewSecrets(nil)
	s.Hold("hunter22")
	v := map[string]any{"city": "Paris", "days": []any{json.Number("1"), "rain", true, nil}, "detail": map[string]any{"wind": "north-west", "text": "cloudy with sun later"}}
	b.ReportAllocs()
	for b.Loop() {
		s.CleanValue(v)
	}
}

func BenchmarkHoldKnown(b *testing.B) {
	s := redact.NewSecrets(nil)
	s.Hold("hunter22")
	b.ReportAllocs()
	for b.Loop() {
		s.Hold("hunter22")()
	}
}

// TestCleanFindsTextReadAsLatin1: a server that reads its headers as Latin-1 returns a non-ASCII secret with one
// character per byte.
func TestCleanFindsTextReadAsLatin1(t *testing.T) {
	s := redact.NewSecrets(nil)
	defer s.Hold("pässwörd-€-キー")()
	for _, text := range []string{
		"pÃ¤sswÃ¶rd-â\u0082¬-ã\u0082\u00adã\u0083¼",
		`p\u00c3\u00a4ssw\u00c3\u00b6rd-\u00e2\u0082\u00ac-\u00e3\u0082\u00ad\u00e3\u0083\u00bc`,
		"pässwörd-€-キー",
	} {
		if got := s.Clean("<" + text + ">"); got != "<"+redact.Marker+">" {
			t.Errorf("%s is left of %s", got, text)
		}
	}
}

// TestManyValues: any number of values come and go, and each is found while it is held and a minute longer.
func TestManyValues(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := redact.NewSecrets(func() time.Time { return now })
	const n = 500
	word := func(i int) string { return fmt.Sprintf("word-%03d", i) }
	check := func(when string, want func(i int) bool) {
		t.Helper()
		for i := range n {
			for _, text := range []string{word(i), hex.EncodeToString([]byte(word(i)))} {
				if found := s.Clean(text) != text; found != want(i) {
					t.Fatalf("%s: %s is found: %t", when, text, found)
				}
			}
		}
	}
	release := make([]func(), n)
	for i := range n {
		release[i] = s.Hold(word(i))
		if s.Clean(word(i)) != redact.Marker {
			t.Fatalf("%s is not known at once", word(i))
		}
	}
	check("all are held", func(int) bool { return true })
	for i := range n {
		if i%5 != 0 {
			release[i]()
		}
	}
	now = now.Add(time.Minute)
	check("most are gone", func(i int) bool { return i%5 == 0 })
	if got := s.Held(); got != n/5 {
		t.Errorf("%d are in memory", got)
	}
	for i := 1; i < n; i += 5 {
		release[i] = s.Hold(word(i))
	}
	check("some are back", func(i int) bool { return i%5 < 2 })
	for i := range n {
		if i%5 < 2 {
			release[i]()
		}
	}
	now = now.Add(time.Minute)
	check("none is held", func(int) bool { return false })
	if s.Holds() || s.Held() != 0 {
		t.Error("something is left")
	}
}

func BenchmarkHoldNew(b *testing.B) {
	for _, held := range []int{0, 100, 5000} {
		b.Run(fmt.Sprint(held), func(b *testing.B) {
			now := time.Unix(1_800_000_000, 0)
			s := redact.NewSecrets(func() time.Time { return now })
			for i := range held {
				s.Hold(fmt.Sprintf("ghp_%020d", i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.Hold(fmt.Sprintf("new_%020d", i))()
				if i%1000 == 0 {
					now = now.Add(time.Minute)
				}
			}
		})
	}
}
