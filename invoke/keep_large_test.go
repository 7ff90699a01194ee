//go:build !race

package invoke_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/redact"
)

// TestKeptIsAsHeld: a body that is stored as it arrives gives the result that it gives when it is held.
func TestKeptIsAsHeld(t *testing.T) {
	const secret = "hunter2-hunter2"
	h := newHarness(t)
	defer h.redact.Hold(redact.AllTenants, secret)()
	cut := func(m *toolkeep.Manifest) { m.Result = &toolkeep.ResultSpec{MaxOutputBytes: 100_001} }
	public := func(m *toolkeep.Manifest) { m.Result = &toolkeep.ResultSpec{MaxOutputBytes: 100_001, Public: true} }
	transform := func(m *toolkeep.Manifest) {
		m.Result = &toolkeep.ResultSpec{MaxOutputBytes: 100_001, Transform: "length"}
	}
	binary := make([]byte, 900<<10)
	for i, r := 0, rand.New(rand.NewPCG(1, 1)); i < len(binary); i++ {
		binary[i] = byte(r.Uint32())
	}
	at := 640 << 10 // where a window of the redactor ends
	copy(binary[at-7:], secret)
	lines := strings.Repeat("a line of text with é in it\n", 40_000)
	for name, x := range map[string]struct {
		media, body string
		tool        func(*toolkeep.Manifest)
		stored      bool // as it arrives
	}{
		"binary":                {"application/octet-stream", string(binary), cut, true},
		"image":                 {"image/png", string(binary), cut, true},
		"short binary":          {"application/octet-stream", "\x00\x01" + secret, cut, false},
		"binary of 200 KB":      {"application/octet-stream", string(binary[:200_000]), cut, false},
		"empty":                 {"application/octet-stream", "", cut, false},
		"text":                  {"text/plain", lines[:at-5] + secret + lines, cut, true},
		"text, cut in a letter": {"text/plain; charset=UTF-8", strings.Repeat("é", 400_000), cut, true},
		"text, not good":        {"text/plain", lines + "\xff\xfe\x00" + lines, cut, true},
		"text, not good early":  {"text/plain", "\xff\x00" + lines, cut, true},
		"text, broken at end":   {"text/plain", lines + "\xc3", cut, true},
		"short text":            {"text/plain", lines[:50_000], cut, false},
		"text of more secrets":  {"text/plain", "x " + strings.Repeat(secret, 100_000) + " y", cut, true},
		"text of secrets":       {"text/plain", strings.Repeat(secret, 20_000), cut, true},
		"UTF-16":                {"text/plain", "\xff\xfe" + strings.Repeat("a\x00", 200_000), cut, false},
		"Latin-1":               {"text/plain; charset=iso-8859-1", strings.Repeat("\xe9", 200_000), cut, false},
		"SVG":                   {"image/svg+xml", "<svg>" + lines, cut, false},
		"YAML":                  {"application/yaml", lines, cut, true},
		"JSON":                  {"application/json", `["` + strings.Repeat(`a","`, 100_000) + `"]`, cut, false},
		"HTML":                  {"text/html", "<p>" + lines, cut, false},
		"CSV":                   {"text/csv", strings.Repeat("a,b\n", 100_000), cut, false},
		"no picture":            {"image/png", "<html>" + lines + lines, cut, true},
		"no type":               {"", string(binary), cut, false},
		"public":                {"application/octet-stream", string(binary), public, false},
		"transformed":           {"text/plain", lines, transform, false},
		"a type with a secret":  {"application/x-" + secret, string(binary), cut, false},
	} {
		t.Run(name, func(t *testing.T) {
			h.t = t
			h.tool("body", x.tool)
			body := func() io.Reader { return iotest.HalfReader(strings.NewReader(x.body)) }
			var kept *toolkeep.Kept
			var results [2]*toolkeep.Result
			for i, keeps := range []bool{false, true} {
				h.answer(x.media, body, keeps)
				do := h.executor.do
				h.executor.do = func(ctx context.Context, e *toolkeep.Execution) (*toolkeep.Output, error) {
					o, err := do(ctx, e)
					kept = o.Kept
					return o, err
				}
				res, err := h.call(&toolkeep.Call{Tool: "std.body"})
				if err != nil {
					t.Fatal(err)
				}
				results[i] = res
			}
			if (kept != nil) != x.stored {
				t.Errorf("it was stored as it arrived: %v", kept != nil)
			}
			held, now := results[0], results[1]
			if !bytes.Equal(held.Output, now.Output) || held.Truncated != now.Truncated || !reflect.DeepEqual(held.Warnings, now.Warnings) {
				t.Errorf("the results differ: %.200s, %v, %v\n%.200s, %v, %v", held.Output, held.Truncated, held.Warnings, now.Output, now.Truncated, now.Warnings)
			}
			if a, b := h.whole(held), h.whole(now); !reflect.DeepEqual(a, b) {
				t.Errorf("what is stored differs: %.300q, %.300q", a, b)
			}
			if strings.Contains(strings.Join(h.whole(now), ""), secret) {
				t.Error("the secret is stored")
			}
		})
	}
}

// TestLargeBodiesTakeLittleMemory: large binaries are on their way at once, and none of them is held, also while secrets
// are looked for in escapes.
func TestLargeBodiesTakeLittleMemory(t *testing.T) {
	testLargeBodies(t, "\x00\x01binary\xff", 8, 16<<20)
	for _, part := range []string{"+", "%41", `\`, "a line\n"} {
		t.Run(part, func(t *testing.T) { testLargeBodies(t, part, 2, 3<<20, "p@ss/w0rd +x") })
	}
}

func testLargeBodies(t *testing.T, part string, n, each int, held ...string) {
	h := newHarness(t, func(c *invoke.Config) { c.ResultMemory, c.SyncLimit = 8<<20, 10*time.Minute })
	defer h.redact.Hold(redact.AllTenants, held...)()
	h.tool("large", func(m *toolkeep.Manifest) { m.Execution.TimeoutMS = 600_000 }) // cleaning is slow under the race detector
	piece := bytes.Repeat([]byte(part), 1024)
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	arrived := make(chan struct{}, n)
	measured := make(chan struct{})
	h.answer("application/octet-stream", func() io.Reader {
		left := each
		return readerFunc(func(b []byte) (int, error) {
			if left == 0 {
				arrived <- struct{}{}
				<-measured
				return 0, io.EOF
			}
			k := copy(b, piece[:min(left, len(piece))])
			left -= k
			return k, nil
		})
	}, true)
	ended := make(chan error, n)
	for range n {
		go func() {
			res, err := h.pipeline.Invoke(context.Background(), alice, &toolkeep.Call{Tool: "std.large"})
			if err == nil && (len(res.Attachments) != 1 || res.Attachments[0].Bytes != int64(each)) {
				err = errors.New("the whole is missing")
			}
			ended <- err
		}()
	}
	for range n {
		select {
		case <-arrived:
		case err := <-ended:
			close(measured)
			for range n - 1 {
				<-ended
			}
			t.Fatalf("a call ended before its body: %v", err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	close(measured)
	for range n {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if took := int64(during.HeapAlloc) - int64(before.HeapAlloc); took > int64(n+2)<<20 {
		t.Errorf("%d results of %d bytes take %d bytes", n, each, took)
	}
}
