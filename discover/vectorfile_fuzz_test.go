package discover

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzVectorFile opens arbitrary content as a vector file. Vectors can be put there in any case,
// and are found by the next start.
func FuzzVectorFile(f *testing.F) {
	v := &vectorFile{dimensions: 2}
	head := spaceHead("a", 2)
	f.Add([]byte(head), []byte{})
	f.Add([]byte(head), bytes.Repeat([]byte{1}, int(v.chunkBytes())+100))
	f.Add([]byte(head), append(make([]byte, v.numberBytes()), 1, 2, 3))
	f.Add([]byte(head[:5]), []byte("x"))
	f.Add([]byte("TKVEC2\n\"a\"\n99999999999999999999\nlittle\n"), []byte{})
	f.Fuzz(func(t *testing.T, head, chunks []byte) {
		dir := t.TempDir()
		content := append(bytes.Clone(head), make([]byte, max(0, headBytes-len(head)))...)
		if len(chunks) == 0 {
			content = head
		}
		if err := os.WriteFile(filepath.Join(dir, vectorFileName("a", 2)), append(content, chunks...), 0o600); err != nil {
			t.Fatal(err)
		}
		m := NewMemory(dir, nil)
		if _, err := m.Spaces(t.Context()); err != nil {
			t.Fatal(err)
		}
		mine := Digest{1, 2, 3}
		for start := range 2 {
			opened, err := m.Open(t.Context(), "a", 2)
			if err != nil {
				t.Fatal(err)
			}
			if start == 0 {
				if err := opened.Put(t.Context(), []Digest{mine}, [][]float32{{0, 1}}); err != nil {
					t.Fatal(err)
				}
			}
			to := [][]float32{{7}}
			if err := opened.Select([]Digest{mine}).Alike(t.Context(), [][]float32{{0, 1}}, to); err != nil || to[0][0] != 1 {
				t.Fatal(start, to, err)
			}
			if err := opened.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
