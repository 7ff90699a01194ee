package inspect

import (
	"errors"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
)

// ask runs a program on a value as a transform, without a time limit.
func ask(t *testing.T, text string, v any, edit ...func(*guard)) (any, *guard, error) {
	t.Helper()
	p, err := compile(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	g := newGuard(v)
	for _, f := range edit {
		f(g)
	}
	out, err := p.run(g, v)
	return out, g, err
}

// TestGuardMemory doubles a text until the guard stops it.
func TestGuardMemory(t *testing.T) {
	_, g, err := ask(t, `def f: . + . | f; f`, strings.Repeat("x", 1<<20), func(g *guard) {
		g.most = 32 << 20
		g.begun = time.Now().Add(time.Hour) // so that the time limit does not end it
	})
	if !errors.Is(err, errMemory) {
		t.Fatalf("it gave %v", err)
	}
	if g.steps > 1000 {
		t.Errorf("it went on for %d steps", g.steps)
	}
}

// TestBombsTogether: programs share the process's heap and therefore the limit.
func TestBombsTogether(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	var before, after runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for range 3 {
		for _, text := range []string{`def f: 1 + f; f`, `def f: . + . | f; "x" | f`, `[range(300000)] | def f: .[] as $a | f; f`} {
			wg.Go(func() { ask(t, text, nil) })
		}
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 8*transformMemory {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// TestMeterFindsCalls: the compiled calls are an internal of the interpreter; a version that stores them elsewhere
// must not run unmetered.
func TestMeterFindsCalls(t *testing.T) {
	for name, text := range map[string]string{
		"_multiply": `. * .`, "tojson": `tojson`, "tostring": `@text`, "format": `format("json")`, "join": `join(",")`, "_match": `[match("x")]`,
		"setpath": `.a = 1`, "_add": `"\(.)x"`, "add": `add`, "flatten": `flatten`, "fromjson": `fromjson`, "explode": `explode`,
		"error": `error`, "transpose": `transpose`, "_equal": `. == .`, "_subtract": `. - .`, "split": `split(",")`, "_group_by": `group_by(.)`,
	} {
		p, err := compile(text)
		if err != nil {
			t.Fatal(err)
		}
		codes, found := reflect.ValueOf(p.code).Elem().FieldByName("codes"), false
		for i := range codes.Len() {
			v := codes.Index(i).Elem().FieldByName("v")
			if call := v.Elem(); call.IsValid() && call.Type() == reflect.TypeFor[[3]any]() && call.Index(2).Elem().String() == name {
				found = true
			}
		}
		if !found {
			t.Errorf("%s: no call of %s is found", text, name)
		}
		// An exhausted guard allows no call.
		_, err = p.run(&guard{Context: t.Context(), most: 1 << 20, err: errMemory}, "x")
		if !errors.Is(err, errMemory) {
			t.Errorf("%s: runs on: %v", text, err)
		}
	}
}
