//go:build unix

package minilm

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/mapped"
)

// copied returns a copy of the model that the test may damage.
func copied(t *testing.T) string {
	t.Helper()
	dir, from := t.TempDir(), modelDir(t)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(from, f.name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCutWhileInUse truncates the weights' file while several callers use the model.
func TestCutWhileInUse(t *testing.T) {
	dir := copied(t)
	path := filepath.Join(dir, WeightsFile)
	m, err := Open(Config{Dir: dir, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := m.Embed(t.Context(), []string{"Get the weather of a city", "x"})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	cut := make(chan struct{})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				err := ask()
				select {
				case <-cut:
				default:
					if err == nil {
						continue
					}
				}
				if err := ask(); !toolkeep.IsCode(err, toolkeep.EmbeddingFailed) || !errors.Is(err, mapped.ErrGone) ||
					!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "models install") {
					t.Errorf("%v", err)
				}
				return
			}
		})
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	close(cut)
	all.Wait()
	if was := debug.SetPanicOnFault(false); was {
		t.Error("faults stay panics")
	}
	// The file is overwritten: this model does not trust it, a new one does.
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ask(); !errors.Is(err, mapped.ErrGone) {
		t.Errorf("%v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if m, err = Open(Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := ask(); err != nil {
		t.Error(err)
	}
}

// TestCutWhileOpened truncates the file between mapping and reading.
func TestCutWhileOpened(t *testing.T) {
	path := filepath.Join(copied(t), WeightsFile)
	data, unmap, err := mapFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unmap() }()
	for _, size := range []int64{64 << 20, 0} { // within the layers, and within the header
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := reading(path, data, func() { _, _ = findTensors(data) }); !errors.Is(err, mapped.ErrGone) {
			t.Errorf("cut to %d bytes: %v", size, err)
		}
	}
}

// TestFaultsInKernels has the assembly code read missing pages.
func TestFaultsInKernels(t *testing.T) {
	defer func(a, w bool) { accelerated, wide = a, w }(accelerated, wide)
	path := filepath.Join(copied(t), WeightsFile)
	data, unmap, err := mapFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unmap() }()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	const rows, steps = 2 * tileRows, Dimensions
	there := func() []float32 { return make([]float32, rows*steps) }
	for _, on := range [][2]bool{{accelerated, wide}, {accelerated, false}, {false, false}} {
		accelerated, wide = on[0], on[1]
		for n := tileRows; n <= rows; n += tileRows {
			err := reading(path, data, func() {
				multiply(there(), steps, there(), steps, n, steps, panels(floats(data)[:steps*2*tileColumns]), there()[:2*tileColumns])
			})
			if !errors.Is(err, mapped.ErrGone) {
				t.Errorf("%d rows, AVX2 %v, AVX-512 %v: %v", n, accelerated, wide, err)
			}
		}
	}
}
