package archive_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// childDir, childStep and childRun make the test binary a process that records and archives until it stands after a step.
const (
	childDir  = "ARCHIVE_TEST_CHILD_DIR"
	childStep = "ARCHIVE_TEST_CHILD_STEP"
	childRun  = "ARCHIVE_TEST_CHILD_RUN"
)

const childEvents = 20 // that each process records

func child(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "db")})
	fail(err)
	sealer, err := secret.OpenSealer(filepath.Join(dir, "key"))
	fail(err)
	a, err := archive.New(archive.Config{Dir: filepath.Join(dir, "archive"), Store: store, Sealer: sealer, Hook: func(step string) {
		if step == os.Getenv(childStep) {
			fmt.Println("there")
			select {} // until it is killed
		}
	}})
	fail(err)
	for i := range childEvents {
		id := os.Getenv(childRun) + "-" + strconv.Itoa(i)
		fail(store.Apply(ctx, toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Type: "x", Tenant: []string{"t", "u"}[i%2], Time: time.Now(), Data: []byte(`{}`)}}))
	}
	fail(a.Archive(ctx, true))
	fail(store.Close())
	fmt.Println("done")
}

// TestKilledBetweenSteps: a process that is killed between the steps of a segment loses nothing, and what the next one
// repeats is read once.
func TestKilledBetweenSteps(t *testing.T) {
	dir := t.TempDir()
	steps := []string{"written", "renamed", "moved", "renamed", "written", ""}
	for run, step := range steps {
		runChild(t, dir, step, run)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := &place{T: t, dir: filepath.Join(dir, "archive"), store: store, began: time.Now()}
	if p.sealer, err = secret.OpenSealer(filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
	p.begin(p.sealer)
	for n, tenant := range []string{"t", "u"} {
		var want []string
		for run := range steps {
			for i := n; i < childEvents; i += 2 {
				want = append(want, fmt.Sprintf("%d-%d", run, i))
			}
		}
		p.has(tenant, want...)
	}
	left := 0
	for _, f := range p.files() {
		if strings.Contains(f, "tmp-") {
			left++
		}
	}
	if left != 2 { // of the two that were killed before the rename; they go after an hour
		t.Errorf("%d unfinished files", left)
	}
}

func runChild(t *testing.T, dir, step string, run int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childStep+"="+step, childRun+"="+strconv.Itoa(run))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := bufio.NewScanner(out)
	line.Scan()
	if want := map[bool]string{true: "done", false: "there"}[step == ""]; line.Text() != want {
		t.Errorf("the child of step %q said %q, want %q", step, line.Text(), want)
	}
	if step != "" {
		_ = cmd.Process.Kill()
	}
	_ = cmd.Wait()
}
