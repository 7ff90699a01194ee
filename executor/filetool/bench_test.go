package filetool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkRead reads 600 bytes with a tool, BenchmarkReadDirect without one.
func BenchmarkRead(b *testing.B) {
	w := newWorld(b)
	w.put("f", strings.Repeat("x", 600))
	x := execution(w.tool("read"), map[string]any{"path": "f"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.e.Execute(b.Context(), x); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadDirect(b *testing.B) {
	w := newWorld(b)
	w.put("f", strings.Repeat("x", 600))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := os.ReadFile(filepath.Join(w.dir, "f")); err != nil {
			b.Fatal(err)
		}
	}
}
