package discover_test

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/vectortest"
)

// crashDir in the environment makes the test binary a writer of vectors, to be killed.
const crashDir = "TOOLKEEP_TEST_VECTORS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := writeVectors(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const perRound = 700

func crashDigest(round, i int) discover.Digest { return vectortest.Digest(fmt.Sprint(round, "-", i)) }

func crashVector(i int) []float32 {
	sin, cos := math.Sincos(float64(i) / perRound)
	return []float32{float32(sin), float32(cos)}
}

// writeVectors puts vectors in rounds, reports each round, and drops those of the round before, so
// the file is rewritten now and then.
func writeVectors(dir string) error {
	v, err := discover.NewMemory(dir, nil).Open(context.Background(), "m", 2)
	if err != nil {
		return err
	}
	for round := 0; ; round++ {
		live := make([]discover.Digest, perRound)
		for i := range live {
			live[i] = crashDigest(round, i)
			if err := v.Put(context.Background(), live[i:i+1], [][]float32{crashVector(i)}); err != nil {
				return err
			}
			if _, err := fmt.Println(round, i); err != nil {
				return err
			}
		}
		if err := v.Retain(context.Background(), live); err != nil {
			return err
		}
	}
}

// TestKilledWriter kills a process while it writes and rewrites a vector file. All vectors it
// reported are there afterwards.
func TestKilledWriter(t *testing.T) {
	for _, after := range []int{1, 1000, 2100, 2800, 2801, 4300, 7001} {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		round, put := 0, 0
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == after {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			var i int
			if _, err := fmt.Sscan(lines.Text(), &round, &i); err != nil {
				break // the last line may be incomplete
			}
			put = i + 1
		}
		_ = cmd.Wait() // it was killed
		v, err := discover.NewMemory(dir, nil).Open(t.Context(), "m", 2)
		if err != nil {
			t.Fatal(err)
		}
		of := make([]discover.Digest, put)
		for i := range of {
			of[i] = crashDigest(round, i)
		}
		to := [][]float32{make([]float32, put)}
		if err := v.Select(of).Alike(t.Context(), [][]float32{{0, 1}}, to); err != nil {
			t.Fatal(err)
		}
		for i, got := range to[0] {
			if want := crashVector(i)[1]; math.Abs(float64(got-want)) > 1e-6 {
				t.Fatalf("killed after %d: vector %d of round %d is %v alike, want %v", after, i, round, got, want)
			}
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
