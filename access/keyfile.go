package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/toolkeep/toolkeep/datadir"
)

// KeyFile is the file with the text of the first admin key.
type KeyFile struct {
	Path    string
	Written func() // called when a text is in the file and its key not yet in the store; nil: nothing
}

// Bootstrap is Access.Bootstrap, with the text in the file before the key is stored. It warns
// if others than the file's owner may read it.
func (f KeyFile) Bootstrap(ctx context.Context, a *Access) (text string, err error) {
	if text, err = a.Bootstrap(ctx, f.keep); err != nil {
		return "", err
	}
	if fi, err := os.Stat(f.Path); err == nil && fi.Mode().Perm()&0o077 != 0 {
		a.config.Log.Warn("the file of the admin key is open to others than its owner; chmod 600 it, and revoke the key if others may have read it",
			"file", f.Path, "mode", fmt.Sprintf("%04o", fi.Mode().Perm()))
	}
	return text, nil
}

// Recover is Access.Recover, with the old text from the file and the new one in its place. It
// returns the key's id.
func (f KeyFile) Recover(ctx context.Context, a *Access) (id string, err error) {
	old, err := os.ReadFile(f.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the old key cannot be read: %w; move %s away", err, f.Path)
	}
	key, err := a.Recover(ctx, strings.TrimSpace(string(old)), f.keep)
	return key.ID, err
}

// keep writes a text to the file.
func (f KeyFile) keep(text string) error {
	if text == "" { // another node was first
		return os.Remove(f.Path)
	}
	if err := datadir.WriteFile(f.Path, text+"\n"); err != nil {
		return err
	}
	if f.Written != nil {
		f.Written()
	}
	return nil
}
