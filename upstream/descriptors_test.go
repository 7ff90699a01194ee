//go:build linux

package upstream

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/toolkeep/toolkeep"
)

const withoutDescriptors = "UPSTREAM_TEST_WITHOUT_DESCRIPTORS"

// TestStartWithoutDescriptors: a program that cannot be started because this process may open
// nothing more is not the server's failure: the error says why, and the next call starts it.
func TestStartWithoutDescriptors(t *testing.T) {
	if os.Getenv(withoutDescriptors) == "" {
		cmd := exec.Command(self(t), "-test.run=^TestStartWithoutDescriptors$", "-test.v")
		cmd.Env = append(os.Environ(), withoutDescriptors+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "looked at both") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	servers := start(t, testConfig(t), stdioSpec(t, ""))
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	small := syscall.Rlimit{Cur: 64, Max: old.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &small); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	_, err := servers.Do(t.Context(), toolCall(alice(), "echo", "x"))
	for _, f := range files {
		f.Close()
	}
	e := toolkeep.AsError(err)
	if e == nil || e.Code != toolkeep.Backpressure || !e.NothingSent || !strings.Contains(e.Message, "this server has no file descriptors left") {
		t.Errorf("without descriptors: %v", err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if _, err := servers.Do(t.Context(), toolCall(alice(), "echo", "x")); err != nil {
		t.Errorf("with descriptors again: %v", err)
	}
	t.Log("looked at both")
}
