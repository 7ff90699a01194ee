package secret

import (
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/toolkeep/toolkeep"
)

// shared is the folder for secrets of all tenants.
const shared = "_shared"

// readFile reads the path after file://. Without want it only checks that the file can be read.
func (r *Resolver) readFile(p *toolkeep.Principal, rest string, want bool) (string, error) {
	name, err := url.PathUnescape(rest)
	if err != nil || !path.IsAbs(name) || strings.ContainsRune(name, 0) || path.Clean(name) != name {
		return "", refuse(toolkeep.SecretNotFound, "a file reference must be file:// and an absolute path without \"..\", such as file:///var/lib/toolkeep/secrets/_shared/token")
	}
	dir, owner, file := r.split(name)
	if dir == "" {
		return "", refuse(toolkeep.SecretAccessDenied, "tools may not read %s: secrets lie in the secrets folder, under the tenant's name or _shared (setting secrets.dirs)", name)
	}
	if owner != shared && (p == nil || p.Tenant != owner) {
		return "", refuse(toolkeep.SecretAccessDenied, "the secret %s belongs to another tenant; secrets for all lie under %s", name, shared)
	}
	f, err := openBelow(dir, owner, file)
	if err != nil {
		return "", openError(name, err)
	}
	defer f.Close()
	if err := checkFile(f, name); err != nil || !want {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return "", refuse(toolkeep.SecretRetrievalFailed, "the secret file %s could not be read", name).Because(err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	return checkValue(value, "file://"+name)
}

// split finds the configured folder above name, and returns it with the owner's folder and the rest. dir is "" if
// there is none.
func (r *Resolver) split(name string) (dir, owner, file string) {
	for _, d := range r.dirs {
		below, ok := strings.CutPrefix(name, strings.TrimSuffix(d, "/")+"/")
		if !ok {
			continue
		}
		owner, file, ok = strings.Cut(below, "/")
		if ok && file != "" {
			return d, owner, file
		}
	}
	return "", "", ""
}

// openBelow opens a file below dir/owner. os.Root keeps every step of the path inside, links included. The owner's
// folder must not be a link, which could lead to another owner's.
func openBelow(dir, owner, file string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fi, err := root.Lstat(owner)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, errNotFolder
	}
	own, err := root.OpenRoot(owner)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	// Opening a pipe must not block.
	return own.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

var errNotFolder = errors.New("the tenant's secrets folder is not a folder")

func openError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return refuse(toolkeep.SecretNotFound, "the secret file %s does not exist", name).Because(err)
	case errors.Is(err, fs.ErrPermission):
		return refuse(toolkeep.SecretRetrievalFailed, "the server may not read the secret file %s", name).Because(err)
	}
	// The remaining cause is usually a link out of the folder.
	return refuse(toolkeep.SecretAccessDenied, "the secret file %s cannot be opened inside its folder; links must not lead out of it", name).Because(err)
}

func checkFile(f *os.File, name string) error {
	fi, err := f.Stat()
	if err != nil {
		return refuse(toolkeep.SecretRetrievalFailed, "the secret file %s could not be read", name).Because(err)
	}
	switch {
	case !fi.Mode().IsRegular():
		return refuse(toolkeep.SecretAccessDenied, "the secret %s is not a regular file", name)
	case fi.Mode().Perm()&0o022 != 0:
		return refuse(toolkeep.SecretAccessDenied, "the secret file %s can be written by others than its owner: chmod go-w it", name)
	case fi.Size() > MaxBytes:
		return refuse(toolkeep.SecretRetrievalFailed, "the secret file %s is over the limit of 64 KiB", name)
	}
	return nil
}
