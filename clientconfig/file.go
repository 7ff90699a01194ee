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
	if err := same(path, old); err != nil {
		return "", err
	}
	if old == nil {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		tmp, err := beside(path, content, nil)
		if err != nil {
			return "", err
		}
		defer os.Remove(tmp)
		err = os.Link(tmp, path) // a rename would replace a file that came meanwhile
		switch {
		case errors.Is(err, fs.ErrExist):
			return "", ErrChanged
		case errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported): // a file system without links
			if err = same(path, nil); err == nil {
				err = os.Rename(tmp, path)
			}
		}
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	kept, err := beside(path, old, nil)
	if err != nil {
		return "", fmt.Errorf("the backup cannot be written: %w", err)
	}
	defer os.Remove(kept) // of no effect once it has its name
	tmp, err := beside(path, content, info)
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp)
	if err := same(path, old); err != nil {
		return "", err
	}
	backup = path + BackupSuffix
	if err := os.Rename(kept, backup); err != nil {
		return "", fmt.Errorf("the backup cannot be written: %w", err)
	}
	return backup, os.Rename(tmp, path)
}

// same fails if a file has not the content old, nil for none.
func same(path string, old []byte) error {
	now, err := Read(path)
	if err == nil && ((now == nil) != (old == nil) || !bytes.Equal(now, old)) {
		err = ErrChanged
	}
	return err
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

// beside writes a file beside the path, for the user alone, or with mode and owner of like, and returns its name.
func beside(path string, content []byte, like fs.FileInfo) (name string, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	if err == nil && like != nil {
		err = takeOver(file, like)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
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
