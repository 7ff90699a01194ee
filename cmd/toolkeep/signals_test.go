package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestHangUpDoesNotEndTheServer: SIGHUP, as of a terminal that closes, changes nothing;
// SIGTERM then drains and ends with success.
func TestHangUpDoesNotEndTheServer(t *testing.T) {
	for _, args := range [][]string{{"serve", "--data", "DATA"}, {"--data", "DATA", "serve"}} {
		t.Run(args[0], func(t *testing.T) { hangUp(t, args) })
	}
}

func hangUp(t *testing.T, args []string) {
	binary, err := exec.LookPath("toolkeep")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "data")
	args = append(slices.Clone(args), "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--grpc-addr=off")
	args[slices.Index(args, "DATA")] = data
	server := exec.Command(binary, args...)
	server.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + data} // no setting of the tests' own
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, data)
	for range 2 {
		if err := server.Process.Signal(syscall.SIGHUP); err != nil {
			t.Error(err)
		}
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
