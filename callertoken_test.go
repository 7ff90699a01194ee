package toolkeep_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestCallerTokenIsHidden: no way of writing a principal gives its token away.
func TestCallerTokenIsHidden(t *testing.T) {
	const raw = "eyJhbGciOi.secret.part"
	p := toolkeep.Principal{Subject: "ann", Token: toolkeep.NewCallerToken(raw, time.Now())}
	if p.Token.Reveal() != raw {
		t.Fatal("it is lost")
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "p", p, "pp", &p, "t", p.Token)
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "p", p, "pp", &p, "t", p.Token)
	for _, f := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		fmt.Fprintf(&b, f+f+f+f, p, &p, p.Token, []any{p.Token})
	}
	for _, v := range []any{p, &p, p.Token, map[string]any{"t": p.Token}} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(data)
	}
	if strings.Contains(b.String(), "secret") {
		t.Errorf("it is in %s", b.String())
	}
}
