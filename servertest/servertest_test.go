package servertest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, script string) (p *servertest.Process, dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	p, err := servertest.Start(cmd, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.End(syscall.SIGKILL, time.Minute); err != nil {
			t.Error(err)
		}
	})
	return p, dir
}

func up(dir string) func(context.Context) error {
	return func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "up"))
		return err
	}
}

func TestProcess(t *testing.T) {
	p, dir := start(t, "trap 'echo bye; exit 0' TERM; echo hello; touch up; while :; do sleep 0.01; done")
	if err := p.Answer(time.Minute, up(dir)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.End(syscall.SIGTERM, time.Minute); err != nil {
			t.Error(err)
		}
	}
	if said := p.Tail(); said != "hello\nbye" {
		t.Errorf("it said %q", said)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("got %v", err)
	}
	again, err := servertest.Start(exec.Command("/bin/echo", strings.Repeat("x", 10<<10)), filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Answer(time.Minute, up(t.TempDir())); err == nil || err.Error() != "the server ended" {
		t.Errorf("got %v", err)
	}
	if said := again.Tail(); said != strings.Repeat("x", 8<<10-1) {
		t.Errorf("%d bytes of what it said", len(said))
	}
}

func TestFreeze(t *testing.T) {
	p, dir := start(t, "while :; do echo x >>up; done")
	if err := p.Answer(time.Minute, up(dir)); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "up"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for range 5 {
		if err := p.Freeze(); err != nil {
			t.Fatal(err)
		}
		before := size()
		time.Sleep(5 * time.Millisecond)
		if after := size(); after != before {
			t.Errorf("it wrote %d bytes while it stood still", after-before)
		}
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for size() == before {
			time.Sleep(time.Millisecond)
		}
	}
	if err := p.End(syscall.SIGKILL, time.Minute); err != nil {
		t.Error(err)
	}
}

func TestProcessThatFails(t *testing.T) {
	p, _ := start(t, "exit 3")
	if err := p.Answer(time.Minute, up(t.TempDir())); err == nil || err.Error() != "the server ended: exit status 3" {
		t.Errorf("got %v", err)
	}
	p, dir := start(t, "trap '' TERM; touch up; while :; do sleep 0.01; done")
	if err := p.Answer(time.Millisecond, up(t.TempDir())); err == nil || !strings.HasPrefix(err.Error(), "the server did not answer within 1ms: ") {
		t.Errorf("got %v", err)
	}
	if err := p.Answer(time.Minute, up(dir)); err != nil {
		t.Fatal(err)
	}
	if err := p.End(syscall.SIGTERM, time.Millisecond); err == nil || err.Error() != "it did not end within 1ms of terminated" {
		t.Errorf("got %v", err)
	}
	if _, err := servertest.Start(exec.Command(filepath.Join(dir, "none")), filepath.Join(dir, "log")); err == nil {
		t.Error("what does not exist was started")
	}
}

func TestFreePort(t *testing.T) {
	if port, err := servertest.FreePort(); err != nil || port == 0 {
		t.Errorf("got %d, %v", port, err)
	}
}
