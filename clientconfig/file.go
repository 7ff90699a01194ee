package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// BackupSuffix is what the name of a backup ends with.
const BackupSuffix = ".before-toolkeep"

// ErrChanged is returned by Write for a file that is not as it was read.
var ErrChanged = errors.New("it was changed meanwhile; nothing was written, repeat the command")

// Read returns the content of a configuration file, nil for one that is not there. It fails for what is no regular
// file, or larger than 64 MiB.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return nil, errors.New("it is a symbolic link to a file that is not there")
		}
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it is over %d MiB", maxFile>>20)
	}
	file, err := os.ReadFile(path)
	if file == nil && err == nil {
		file = []byte{} // it is there
	}
	return file, err
}

// Write puts the new content of a configuration file in place at once, if the file still has the old one, nil for one
// that is not there. Of a symbolic link it writes the target. Mode and owner stay; a new file, and folders that it
// needs, are the user's alone. The old content is put into a file beside it, for the user alone, in place of an
// earlier one; backup is its path, "" for a new file.
func Write(path string, old, content []byte) (backup string, err error) {
	if path, err = resolve(path); err != nil {
		return "", err
	}
	now, err := Read(path)
	switch {
	case err != nil:
		return "", err
	case (now == nil) != (old == nil) || !bytes.Equal(now, old):
		return "", ErrChanged
	case old == nil:
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		return "", replace(path, nil, content, nil)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	backup = path + BackupSuffix
	if err := replace(backup, nil, old, nil); err != nil {
		return "", fmt.Errorf("the backup cannot be written: %w", err)
	}
	return backup, replace(path, info, content, old)
}

// resolve follows symbolic links; a file that is not there is as it is named.
func resolve(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
	}
	return target, err
}

// replace writes a file beside the path and gives it its name. like, if set, is the file with the content old that is
// there now, whose mode and owner the new one gets.
func replace(path string, like fs.FileInfo, content, old []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // of no effect once it has its name
	_, err = file.Write(content)
	if err == nil && like != nil {
		err = takeOver(file, like)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if like != nil {
		if now, err := Read(path); err != nil || !bytes.Equal(now, old) {
			return errors.Join(err, ErrChanged)
		}
	}
	return os.Rename(file.Name(), path)
}

// takeOver gives a file the owner and the mode of another one.
func takeOver(file *os.File, like fs.FileInfo) error {
	if of, ok := like.Sys().(*syscall.Stat_t); ok {
		if err := file.Chown(int(of.Uid), int(of.Gid)); err != nil {
			return fmt.Errorf("its owner cannot be kept: %w", err)
		}
	}
	return file.Chmod(like.Mode().Perm())
}
