package inspect

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/itchyny/gojq"
)

// TestGuardMemory doubles a text until the guard sees it.
func TestGuardMemory(t *testing.T) {
	q, err := gojq.Parse(`def f: . + . | f; f`)
	if err != nil {
		t.Fatal(err)
	}
	code, err := gojq.Compile(q)
	if err != nil {
		t.Fatal(err)
	}
	g := newGuard()
	g.most = 32 << 20
	g.begun = time.Now().Add(time.Hour) // time is not what ends it
	v, _ := code.RunWithContext(g, strings.Repeat("x", 1<<20)).Next()
	if err, ok := v.(error); !ok || !errors.Is(err, errMemory) {
		t.Fatalf("it gave %T", v)
	}
	if g.steps > 1000 {
		t.Errorf("it went on for %d steps", g.steps)
	}
}
