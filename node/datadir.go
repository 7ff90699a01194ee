package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dirLock is the claim of one process on a data directory.
type dirLock struct{ file *os.File }

// lockDir takes the directory's lock; a directory that another process holds is
// an error that names the process.
func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the data directory cannot be locked: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the data directory cannot be locked: %w", err)
		}
		var holder struct {
			PID int `json:"pid"`
		}
		raw, _ := os.ReadFile(path)
		_ = json.Unmarshal(raw, &holder)
		return nil, fmt.Errorf("the data directory %s is in use by process %d; stop it, or name another directory with --data", dir, holder.PID)
	}
	text := fmt.Sprintf("{\"pid\":%d}\n", os.Getpid())
	if err := errors.Join(file.Truncate(0), writeAt(file, text)); err != nil {
		file.Close()
		return nil, fmt.Errorf("the data directory cannot be locked: %w", err)
	}
	return &dirLock{file}, nil
}

// Lock claims the data directory dir for this process until release is called; a
// directory that another process holds is an error that names the process.
func Lock(dir string) (release func(), err error) {
	l, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return l.release, nil
}

// Holder gives the process that holds the data directory dir, 0 without any. To
// find out it shares the lock for a moment.
func Holder(dir string) (pid int, err error) {
	path := filepath.Join(dir, "lock")
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, err
	}
	var holder struct {
		PID int `json:"pid"`
	}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &holder)
	}
	return holder.PID, err
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

func (l *dirLock) release() { l.file.Close() }

// writeFile writes a file that its owner alone may read, whole or not at all.
func writeFile(path, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(text)
	if err := errors.Join(err, tmp.Chmod(0o600), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
