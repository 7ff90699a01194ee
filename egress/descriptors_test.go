//go:build unix

package egress_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

const withoutDescriptors = "TOOLKEEP_TEST_WITHOUT_DESCRIPTORS"

// TestOutOfDescriptors: a process that may open nothing more says so, of addresses and of
// names, and does not blame who was to be reached.
func TestOutOfDescriptors(t *testing.T) {
	if os.Getenv(withoutDescriptors) != "" {
		exhausted(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOutOfDescriptors$", "-test.v")
	cmd.Env = append(os.Environ(), withoutDescriptors+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "looked at both") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, other := range []error{nil, errors.New("x"), syscall.ECONNREFUSED, os.ErrNotExist} {
		if e := egress.OutOfDescriptors(other); e != nil {
			t.Errorf("%v was taken for a lack of descriptors: %v", other, e)
		}
	}
}

// exhausted runs in a process of its own.
func exhausted(t *testing.T) {
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	var files []*os.File // open until the end
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	g := egress.Guard{Allow: []toolkeep.HostPort{{Host: "127.0.0.1"}}}
	if _, err := g.DialContext(t.Context(), "tcp", "127.0.0.1:1"); err == nil || egress.OutOfDescriptors(err) != nil {
		t.Errorf("a refused connection, with descriptors: %v", err)
	}
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			if egress.OutOfDescriptors(fmt.Errorf("open: %w", err)) == nil {
				t.Errorf("the limit: %v", err)
			}
			break
		}
		files = append(files, f)
	}
	for _, addr := range []string{"127.0.0.1:1", "upstream.example:1"} {
		_, err := g.DialContext(t.Context(), "tcp", addr)
		e := toolkeep.AsError(err)
		if e.Code != toolkeep.Backpressure || !e.NothingSent || e.RetryAfter <= 0 || !strings.Contains(e.Message, "this server has no file descriptors left") || !strings.Contains(e.Message, "64, ulimit -n") {
			t.Errorf("%s: %+v", addr, e)
		}
	}
	t.Log("looked at both")
}
