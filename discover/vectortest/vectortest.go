// Package vectortest is the test suite every discover.Backend must pass.
package vectortest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Place is the storage of one test's vectors.
type Place struct {
	// Open opens a backend at this place. The suite closes it, and opens the next as a restart
	// would.
	Open func(t *testing.T) discover.Backend
	// Later advances time so far that vectors unused before may be dropped.
	Later func()
	// Shared is set if two backends may be open at the place at once.
	Shared bool
	// Lasting is set if vectors survive a restart.
	Lasting bool
	// Cut makes the place unreachable until mend is called; nil: not possible.
	Cut func(t *testing.T) (mend func())
}

// Run runs the suite. place creates an empty place for each test.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Place)
	}{
		{"alike", alike}, {"put and replace", replace}, {"retain", retain}, {"refused", refused}, {"models", models},
		{"restart", restart}, {"shared", shared}, {"closed", closed}, {"together", together}, {"cut", cut},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, place(t)) })
	}
}

const dims = 24

func backend(t *testing.T, p Place) discover.Backend {
	t.Helper()
	b := p.Open(t)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func open(t *testing.T, b discover.Backend, model string, dimensions int) discover.Vectors {
	t.Helper()
	v, err := b.Open(t.Context(), model, dimensions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Digest is that of a text.
func Digest(text string) discover.Digest { return sha256.Sum256([]byte(text)) }

// texts are n digests that begin with name.
func texts(name string, n int) []discover.Digest {
	out := make([]discover.Digest, n)
	for i := range out {
		out[i] = Digest(fmt.Sprint(name, i))
	}
	return out
}

// Vectors are n random vectors of length 1, the same for the same seed.
func Vectors(seed uint64, n, dimensions int) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([][]float32, n)
	for i := range out {
		out[i] = make([]float32, dimensions)
		sum := 0.0
		for k := range out[i] {
			out[i][k] = float32(r.NormFloat64())
			sum += float64(out[i][k]) * float64(out[i][k])
		}
		for k := range out[i] {
			out[i][k] /= float32(math.Sqrt(sum))
		}
	}
	return out
}

func want(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return max(0, sum)
}

// ask returns the similarities of queries to texts. The answer is prefilled, so that partial
// answers are detected.
func ask(ctx context.Context, v discover.Vectors, queries [][]float32, of []discover.Digest) ([][]float32, error) {
	to := make([][]float32, len(queries))
	for q := range to {
		to[q] = slices.Repeat([]float32{7}, len(of))
	}
	return to, v.Select(of).Alike(ctx, queries, to)
}

func near(t *testing.T, what string, got float32, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 1e-5 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func alike(t *testing.T, p Place) {
	v := open(t, backend(t, p), "a", dims)
	const n = 300
	of, numbers := texts("t", n), Vectors(1, n, dims)
	must(t, v.Put(t.Context(), of, numbers))
	asked := slices.Concat(of, texts("unknown", 3), of[:5])
	queries := Vectors(2, 3, dims)
	got, err := ask(t.Context(), v, queries, asked)
	must(t, err)
	for q := range queries {
		for i, d := range asked {
			expect := 0.0
			if k := slices.Index(of, d); k >= 0 {
				expect = want(queries[q], numbers[k])
			}
			near(t, fmt.Sprintf("query %d, text %d", q, i), got[q][i], expect)
		}
	}
	s := v.Select(asked)
	if !s.Has(0) || s.Has(n) || !s.Has(len(asked)-1) {
		t.Error("Has is wrong")
	}
	// Nothing asked, and nothing to compare with.
	got, err = ask(t.Context(), v, nil, of)
	if len(got) != 0 || err != nil {
		t.Error(got, err)
	}
	got, err = ask(t.Context(), v, queries, nil)
	if len(got) != len(queries) || err != nil {
		t.Error(got, err)
	}
	must(t, v.Put(t.Context(), nil, nil))
	if have, err := v.Have(t.Context(), nil); len(have) != 0 || err != nil {
		t.Error(have, err)
	}
}

func replace(t *testing.T, p Place) {
	v := open(t, backend(t, p), "a", dims)
	of, first, second := texts("t", 3), Vectors(1, 3, dims), Vectors(2, 3, dims)
	have, err := v.Have(t.Context(), of)
	must(t, err)
	if slices.Contains(have, true) {
		t.Fatal("an empty place has vectors")
	}
	before := v.Select(of)
	must(t, v.Put(t.Context(), of, first))
	if before.Has(0) {
		t.Error("a selection learned of what was put later")
	}
	have, err = v.Have(t.Context(), append(texts("u", 1), of...))
	must(t, err)
	if !slices.Equal(have, []bool{false, true, true, true}) {
		t.Error(have)
	}
	must(t, v.Put(t.Context(), of[1:2], second[1:2]))
	// The same text twice at once: the last one counts.
	must(t, v.Put(t.Context(), []discover.Digest{of[2], of[2]}, [][]float32{first[0], second[2]}))
	query := Vectors(3, 1, dims)
	got, err := ask(t.Context(), v, query, of)
	must(t, err)
	near(t, "kept", got[0][0], want(query[0], first[0]))
	near(t, "replaced", got[0][1], want(query[0], second[1]))
	near(t, "replaced twice", got[0][2], want(query[0], second[2]))
}

func retain(t *testing.T, p Place) {
	b := backend(t, p)
	v := open(t, b, "a", dims)
	const n = 2500
	live, numbers := texts("live", 5), Vectors(1, 5, dims)
	dead := texts("dead", n)
	must(t, v.Put(t.Context(), dead[:n/2], Vectors(2, n/2, dims)))
	must(t, v.Put(t.Context(), live, numbers))
	must(t, v.Put(t.Context(), dead[n/2:], Vectors(3, n/2, dims)))
	before := v.Select(live)
	p.Later()
	must(t, v.Retain(t.Context(), live))
	have, err := v.Have(t.Context(), dead)
	must(t, err)
	if slices.Contains(have, true) {
		t.Error("vectors that no tool uses are kept")
	}
	query := Vectors(4, 1, dims)
	check := func(s discover.Selection, what string) {
		t.Helper()
		to := [][]float32{make([]float32, len(live))}
		must(t, s.Alike(t.Context(), query, to))
		for i := range live {
			near(t, fmt.Sprint(what, i), to[0][i], want(query[0], numbers[i]))
		}
	}
	check(before, "a selection from before, ")
	check(v.Select(live), "a new selection, ")
	must(t, v.Put(t.Context(), dead[:1], query))
	check(v.Select(live), "after the next put, ")
	if !p.Lasting {
		return
	}
	must(t, v.Close())
	v = open(t, b, "a", dims)
	have, err = v.Have(t.Context(), append(slices.Clone(dead[:2]), live...))
	must(t, err)
	if !slices.Equal(have, []bool{true, false, true, true, true, true, true}) {
		t.Errorf("after a restart %v", have)
	}
	check(v.Select(live), "after a restart, ")
}

func code(err error) toolkeep.Code {
	var e *toolkeep.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func refused(t *testing.T, p Place) {
	b := backend(t, p)
	v := open(t, b, "a", dims)
	good := Vectors(1, 2, dims)
	nan := slices.Clone(good[1])
	nan[3] = float32(math.NaN())
	infinite := slices.Clone(good[1])
	infinite[3] = float32(math.Inf(1))
	for name, bad := range map[string][][]float32{
		"short": {good[0], good[1][:dims-1]}, "long": {good[0], append(slices.Clone(good[1]), 1)}, "none": {good[0], nil},
		"too few": good[:1], "no number": {good[0], nan}, "infinite": {good[0], infinite},
	} {
		if err := v.Put(t.Context(), texts("t", 2), bad); code(err) != toolkeep.EmbeddingFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
	have, err := v.Have(t.Context(), texts("t", 2))
	must(t, err)
	if slices.Contains(have, true) {
		t.Error("a part of what was refused was kept")
	}
	must(t, v.Put(t.Context(), texts("t", 2), good))
	if _, err := ask(t.Context(), v, Vectors(1, 1, dims+1), texts("t", 2)); code(err) != toolkeep.EmbeddingFailed {
		t.Errorf("a query of another dimension: %v", err)
	}
	for _, n := range []int{0, -1, 1 << 20} {
		if _, err := b.Open(t.Context(), "b", n); code(err) != toolkeep.IndexUnavailable {
			t.Errorf("%d dimensions: %v", n, err)
		}
	}
}

func models(t *testing.T, p Place) {
	b := backend(t, p)
	type side struct {
		model      string
		dimensions int
		numbers    [][]float32
		v          discover.Vectors
	}
	// Names that look alike in the name of a file or a table.
	sides := []*side{{model: "a/b", dimensions: dims}, {model: "a-b", dimensions: dims}, {model: "a/b", dimensions: dims + 1}, {model: "ü'\";\n", dimensions: 1}}
	of := texts("t", 4)
	for i, s := range sides {
		s.v = open(t, b, s.model, s.dimensions)
		s.numbers = Vectors(uint64(i), 4, s.dimensions)
		must(t, s.v.Put(t.Context(), of[:i+1], s.numbers[:i+1]))
	}
	for i, s := range sides {
		query := Vectors(9, 1, s.dimensions)
		got, err := ask(t.Context(), s.v, query, of)
		must(t, err)
		for k := range of {
			expect := 0.0
			if k <= i {
				expect = want(query[0], s.numbers[k])
			}
			near(t, fmt.Sprintf("%q, text %d", s.model, k), got[0][k], expect)
		}
	}
	spaces, err := b.Spaces(t.Context())
	must(t, err)
	if !p.Lasting {
		return
	}
	for i, s := range sides {
		if !slices.Contains(spaces, discover.Space{Model: s.model, Dimensions: s.dimensions, Vectors: i + 1}) {
			t.Errorf("%q is not in %v", s.model, spaces)
		}
	}
	if len(spaces) != len(sides) {
		t.Error(spaces)
	}
}

func restart(t *testing.T, p Place) {
	if !p.Lasting {
		t.Log("nothing lasts at this place")
		return
	}
	of, numbers := texts("t", 1500), Vectors(1, 1500, dims)
	b := p.Open(t)
	spaces, err := b.Spaces(t.Context())
	if len(spaces) != 0 || err != nil {
		t.Fatal(spaces, err)
	}
	v, err := b.Open(t.Context(), "a", dims)
	must(t, err)
	must(t, v.Put(t.Context(), of, numbers))
	must(t, v.Put(t.Context(), of[:1], numbers[1:2]))
	must(t, v.Close())
	must(t, b.Close())
	v = open(t, backend(t, p), "a", dims)
	have, err := v.Have(t.Context(), of)
	must(t, err)
	if slices.Contains(have, false) {
		t.Fatal("a restart lost vectors")
	}
	query := Vectors(2, 1, dims)
	got, err := ask(t.Context(), v, query, of)
	must(t, err)
	near(t, "the replaced one", got[0][0], want(query[0], numbers[1]))
	for i := 1; i < len(of); i++ {
		near(t, fmt.Sprint("text ", i), got[0][i], want(query[0], numbers[i]))
	}
}

func shared(t *testing.T, p Place) {
	if !p.Shared {
		t.Log("this place is one process's own")
		return
	}
	one, two := open(t, backend(t, p), "a", dims), open(t, backend(t, p), "a", dims)
	of, numbers := texts("t", 40), Vectors(1, 40, dims)
	must(t, one.Put(t.Context(), of, numbers))
	if two.Select(of).Has(0) {
		t.Error("Select read the shared store")
	}
	have, err := two.Have(t.Context(), of)
	must(t, err)
	if slices.Contains(have, false) {
		t.Fatal("the other node's vectors are not there")
	}
	query := Vectors(2, 1, dims)
	got, err := ask(t.Context(), two, query, of)
	must(t, err)
	for i := range of {
		near(t, fmt.Sprint("text ", i), got[0][i], want(query[0], numbers[i]))
	}
	// Both put the same texts at once, in other orders.
	back := slices.Clone(of)
	slices.Reverse(back)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := one.Put(t.Context(), of, numbers); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := two.Put(t.Context(), back, numbers); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := two.Retain(t.Context(), back); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func closed(t *testing.T, p Place) {
	b := backend(t, p)
	v, err := b.Open(t.Context(), "a", dims)
	must(t, err)
	of, numbers := texts("t", 2), Vectors(1, 2, dims)
	must(t, v.Put(t.Context(), of, numbers))
	s := v.Select(of)
	must(t, v.Close())
	must(t, v.Close())
	_, have := v.Have(t.Context(), of)
	for name, err := range map[string]error{
		"Have": have, "Put": v.Put(t.Context(), of, numbers), "Retain": v.Retain(t.Context(), of),
		"Alike": s.Alike(t.Context(), numbers[:1], [][]float32{make([]float32, 2)}),
	} {
		if code(err) != toolkeep.IndexUnavailable {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	v.Select(of) // it may be asked for, and is of no use
	open(t, b, "a", dims)
}

// together runs writers and readers on the same vectors. Vectors that are never replaced must
// always be found as put.
func together(t *testing.T, p Place) {
	v := open(t, backend(t, p), "a", dims)
	const n = 40
	fixed, numbers := texts("fixed", n), Vectors(1, n, dims)
	must(t, v.Put(t.Context(), fixed, numbers))
	query := Vectors(2, 2, dims)
	var all sync.WaitGroup
	for w := range 3 {
		all.Go(func() {
			for i := range 30 {
				of := texts(fmt.Sprint("new", w, i, "-"), 50)
				if err := v.Put(t.Context(), of, Vectors(uint64(i), 50, dims)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		all.Go(func() {
			for range 30 {
				of := append(texts(fmt.Sprint("new", w, 3, "-"), 50), fixed...)
				if have, err := v.Have(t.Context(), of); err != nil || slices.Contains(have[50:], false) {
					t.Error(err, "or a vector is lost")
					return
				}
				got, err := ask(t.Context(), v, query, of)
				if err != nil {
					t.Error(err)
					return
				}
				for q := range query {
					for i := range fixed {
						near(t, "while others write", got[q][50+i], want(query[q], numbers[i]))
					}
				}
			}
		})
	}
	all.Go(func() {
		for range 30 {
			if err := v.Retain(t.Context(), fixed); err != nil {
				t.Error(err)
				return
			}
		}
	})
	all.Wait()
}

func cut(t *testing.T, p Place) {
	if p.Cut == nil {
		t.Log("this place cannot be cut off")
		return
	}
	b := backend(t, p)
	v := open(t, b, "a", dims)
	of, numbers := texts("t", 3), Vectors(1, 3, dims)
	must(t, v.Put(t.Context(), of, numbers))
	mend := p.Cut(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := ask(ctx, v, numbers[:1], of); code(err) != toolkeep.IndexUnavailable {
		t.Errorf("Alike: %v", err)
	}
	if err := v.Put(ctx, of, numbers); code(err) != toolkeep.IndexUnavailable {
		t.Errorf("Put: %v", err)
	}
	if _, err := v.Have(ctx, of); code(err) != toolkeep.IndexUnavailable {
		t.Errorf("Have: %v", err)
	}
	if _, err := b.Open(ctx, "b", dims); code(err) != toolkeep.IndexUnavailable {
		t.Errorf("Open: %v", err)
	}
	if _, err := b.Spaces(ctx); code(err) != toolkeep.IndexUnavailable {
		t.Errorf("Spaces: %v", err)
	}
	mend()
	// The first question after that is answered.
	got, err := ask(t.Context(), v, numbers[:1], of)
	must(t, err)
	near(t, "after it came back", got[0][0], 1)
	must(t, v.Put(t.Context(), of, numbers))
}
