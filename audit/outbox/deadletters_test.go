package outbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func letterOf(id string) *Event { return &Event{ID: id, JSON: []byte(`{"id":"` + id + `"}`)} }

// TestDeadLetters: what a crash cut off is removed, what cannot be read stays, and a replay ends at what stops it.
func TestDeadLetters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	d := deadLetters{path: path, most: 1 << 20}
	if err := d.open(); err != nil || d.count != 0 {
		t.Fatalf("%d, %v", d.count, err)
	}
	for _, id := range []string{"a", "b", "c"} {
		if err := d.add(time.Now(), letterOf(id), errors.New("no")); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("not JSON\n"), append(raw, `{"at":"20`...)...), 0o600); err != nil {
		t.Fatal(err)
	}
	d = deadLetters{path: path, most: 1 << 20}
	if err := d.open(); err != nil || d.count != 4 {
		t.Fatalf("%d, %v", d.count, err)
	}
	if err := d.add(time.Now(), letterOf("d"), errors.New("no")); err != nil {
		t.Fatal(err)
	}
	var tried []string
	sent, err := d.replay(func(e *Event) (bool, error) {
		tried = append(tried, e.ID)
		switch e.ID {
		case "a":
			return false, errors.New("refused again")
		case "c":
			return true, errors.New("down")
		}
		return false, nil
	})
	if err != nil || sent != 1 || d.count != 4 || strings.Join(tried, "") != "abc" {
		t.Fatalf("%d sent of %v, %d there, %v", sent, tried, d.count, err)
	}
	raw, err = os.ReadFile(path)
	if text := string(raw); err != nil || int64(len(raw)) != d.size || strings.Count(text, "\n") != 4 || !strings.HasPrefix(text, "not JSON\n") || !strings.Contains(text, "refused again") || strings.Contains(text, `"id":"b"`) {
		t.Errorf("%s, %v", raw, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) != 0 {
		t.Errorf("the replay left %v", left)
	}
}

// TestMovedDeadLetters: the letter after a file was moved away, or was cut by hand, is a whole line.
func TestMovedDeadLetters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	d := deadLetters{path: path, most: 1 << 20}
	add := func(id string, count int) {
		t.Helper()
		if err := d.add(time.Now(), letterOf(id), errors.New("no")); err != nil || d.count != count {
			t.Fatalf("%d there, %v", d.count, err)
		}
	}
	add("a", 1)
	add("b", 2)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	add("c", 1)
	add("d", 2)
	raw, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(raw), `{"at":`) {
		t.Fatalf("%q, %v", raw, err)
	}
	if err := os.WriteFile(path, raw[:len(raw)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	add("e", 2)
	var sent []string
	if n, err := d.replay(func(e *Event) (bool, error) { sent = append(sent, e.ID); return false, nil }); err != nil || n != 2 || strings.Join(sent, "") != "ce" {
		t.Errorf("%d sent, %v, %v", n, sent, err)
	}
}
