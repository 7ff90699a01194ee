package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestHangUpDoesNotEndTheServer: SIGHUP, as of a terminal that closes, changes nothing;
// SIGTERM then drains and ends with success.
func TestHangUpDoesNotEndTheServer(t *testing.T) {
	binary, err := exec.LookPath("toolkeep")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "data")
	server := exec.Command(binary, "serve", "--data", data, "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--grpc-addr=off")
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
