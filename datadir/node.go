package datadir

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$`)

// CheckNodeName refuses a name that a node cannot have.
func CheckNodeName(name string) error {
	if nodeName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%.60q cannot be a node's name: it has 1 to 50 letters, digits, dots, hyphens and underscores, and begins with a letter or a digit", name)
}

// NodeName returns the name of the node whose data directory dir is: the setting, or the one in
// the file NodeFile, which is made if it is not there. Hold the directory's lock.
func NodeName(dir, setting string) (string, error) {
	if setting != "" {
		return setting, nil
	}
	path := filepath.Join(dir, NodeFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		name := newNodeName()
		return name, WriteFile(path, name+"\n")
	}
	if err != nil {
		return "", fmt.Errorf("the node's name cannot be read: %w", err)
	}
	name := strings.TrimSpace(string(raw))
	if err := CheckNodeName(name); err != nil {
		return "", fmt.Errorf("%s: %w; write another, or remove the file to have one made", path, err)
	}
	return name, nil
}

// newNodeName is the machine's name with something that makes it unique.
func newNodeName() string {
	host, _ := os.Hostname() // without one the name says less
	host, _, _ = strings.Cut(host, ".")
	if len(host) > 40 || !nodeName.MatchString(host) {
		host = "node"
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return host + "-" + hex.EncodeToString(b[:])
}

// Identity names the data directory dir on this run of the machine. Who holds its lock and
// finds that another process said the same knows that it is dead; "" where the system does
// not tell.
func Identity(dir string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	info, statErr := os.Stat(filepath.Join(dir, lock))
	if err != nil || statErr != nil {
		return ""
	}
	at, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", boot, at.Dev, at.Ino))
	return hex.EncodeToString(sum[:8])
}
