package openapi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListAliasBomb: a few lines of lists of aliases to lists stand for 9^12 values, and are
// refused before they are expanded.
func TestListAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("openapi: 3.0.3\ninfo: {title: Bomb, version: '1'}\npaths: {}\nx-0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i <= 12; i++ {
		fmt.Fprintf(&b, "x-%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	path := filepath.Join(t.TempDir(), "bomb.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Read(t.Context(), Options{Location: path})
	if err == nil || !strings.Contains(err.Error(), "aliases written out") {
		t.Fatalf("got %v", err)
	}
}
