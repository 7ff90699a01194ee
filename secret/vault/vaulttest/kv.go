package vaulttest

import (
	"bufio"
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// StartKV starts Vault's KV plugin in its own process, as the engine of the mounts, such as "secret=2", and returns
// its address, http://127.0.0.1:PORT. It starts within milliseconds, accepts any token and has no policies. It ends
// with the test. If the program is not built, it fails or skips like Start.
func StartKV(t testing.TB, mounts ...string) (url string) {
	t.Helper()
	var args []string
	for _, m := range mounts {
		args = append(args, "-mount", m)
	}
	cmd := exec.Command(binary(t, "kvtest"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the KV engine ended with %v: %s", err, stderr.String())
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the KV engine did not start: %v", err)
	}
	return "http://" + strings.TrimSpace(line)
}

// PutKV writes to an API path, such as secret/data/acme/x.
func PutKV(t testing.TB, url, path, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPut, url+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vault-Token", "the test's")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("%s was answered with status %d", path, resp.StatusCode)
	}
}
