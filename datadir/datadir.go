// Package datadir is the data directory of a server: what lies in it (Places), and the
// lock by which one process owns it.
package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Lock claims the data directory dir for this process until release is called. A
// directory that another process holds is an error that names the process.
func Lock(dir string) (release func(), err error) {
	path := filepath.Join(dir, lock)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the data directory cannot be locked: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for try := 0; errors.Is(err, syscall.EWOULDBLOCK) && try < 10; try++ {
		time.Sleep(10 * time.Millisecond) // a Holder shares it for less
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
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
	return func() {
		// Closing the file would leave the lock to a child process that has not executed
		// its program yet.
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
		file.Close()
	}, nil
}

// Holder gives the process that holds the data directory dir, 0 without any. To
// find out it shares the lock for a moment.
func Holder(dir string) (pid int, err error) {
	path := filepath.Join(dir, lock)
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

// WriteFile writes a file that its owner alone may read, whole or not at all.
func WriteFile(path, text string) error {
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

// Free is how many bytes a user without privileges may still write to the disk of dir.
func Free(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// Empty tells whether nothing but a lock is in dir; an error of fs.ErrNotExist where
// there is no dir.
func Empty(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != lock }), err
}

// Remove removes dir and its lock, unless something else is in it.
func Remove(dir string) {
	_ = os.Remove(filepath.Join(dir, lock))
	_ = os.Remove(dir)
}

// SizeText formats a number of bytes for people.
func SizeText(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	x, u := float64(n), 0
	for x >= 1024 && u < len(units)-1 {
		x, u = x/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", x, units[u])
}

// CheckDatabase refuses an empty database beside the key that sealed what was in it: a
// start would take it for a new one, and make another admin key.
func CheckDatabase(data string) error {
	path, key := filepath.Join(data, Database), filepath.Join(data, SealKey)
	info, err := os.Stat(path)
	if err != nil || info.Size() > 0 {
		return nil // absent, or for the store to judge
	}
	if _, err := os.Stat(key); err != nil {
		return nil
	}
	return fmt.Errorf("the database %s is empty, and %s shows that it was not: its content is lost; run `toolkeep restore` with a backup, or move the data directory aside and start with an empty one (`toolkeep doctor` checks it)", path, key)
}
