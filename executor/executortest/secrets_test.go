package executortest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestForms encodes a secret as programs do and checks that each text contains one of
// the forms.
func TestForms(t *testing.T) {
	const secret = `p@ss/w0rd +<é😀>"\&`
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	b := []byte(secret)
	texts := map[string]string{
		"raw": "key=" + secret, "JSON": string(quoted), "hex": hex.EncodeToString(b), "HEX": strings.ToUpper(hex.EncodeToString(b)),
		"query": url.Values{"k": {secret}}.Encode(), "path": (&url.URL{Path: secret}).EscapedPath() + url.PathEscape(secret),
		"JSON in ASCII": `"p@ss/w0rd +\u003c\u00e9\ud83d\ude00\u003e\"\\\u0026"`,
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for i, before := range []string{"", "u", "us", "use", "user:"} {
			texts[fmt.Sprintf("base64 %p %d", enc, i)] = enc.EncodeToString([]byte(before + secret + "end"))
			texts[fmt.Sprintf("base64 %p %d at the end", enc, i)] = enc.EncodeToString([]byte(before + secret))
		}
	}
	w := &watched{forms: forms(secret)}
	for name, text := range texts {
		if !w.within(text) {
			t.Errorf("%s: not found in %s", name, text)
		}
	}
	for _, form := range w.forms {
		if len(form) < 6 {
			t.Errorf("the form %q may stand anywhere", form)
		}
	}
	if w.within("a text without it: p@ss, w0rd") {
		t.Error("found where it is not")
	}
}

// TestWatched checks that the executor's log and messages to the caller are searched.
func TestWatched(t *testing.T) {
	c := &Case{Credentials: []toolkeep.Credential{{Value: "s3cr/et+value"}}}
	log := slog.New(Log()).With("a", 1).WithGroup("g")
	w := watch(t, c)
	log.Debug("sent", "url", &url.URL{Scheme: "http", Host: "h", RawQuery: "k=s3cr%2Fet%2Bvalue"})
	w.execution.Caller.Progress(toolkeep.Progress{Message: "s3cr/et+value"})
	if text := w.log.out.text(); !w.within(text) || !strings.Contains(text, "a=1") {
		t.Errorf("the log is %q", text)
	}
	if !w.within(w.caller.text()) {
		t.Error("progress is not looked through")
	}
	if got := w.execution.Clean.Clean("x s3cr/et+value y"); w.within(got) {
		t.Errorf("not cleaned: %s", got)
	}
}
