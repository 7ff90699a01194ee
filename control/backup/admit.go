package backup

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
)

// Bounds of an archive.
const (
	maxEntries   = 2_000_000
	maxName      = 512
	maxNameDepth = 8
	maxNote      = 64 << 10
)

// unfitError is what keeps a file out of an archive.
type unfitError struct{ error }

func unfit(format string, args ...any) error { return unfitError{fmt.Errorf(format, args...)} }

// admit refuses a file that an archive may not have, by its name there and its bytes. Make
// and Restore both ask it, so that what is archived can be restored.
func admit(name string, size int64) error {
	first, _, below := strings.Cut(name, "/")
	if len(name) > maxName || strings.Count(name, "/") >= maxNameDepth || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") {
		return unfit("%q is not a name of a file in a backup", toolkeep.Clip(name, 100))
	}
	most := int64(maxNote)
	if name != noteName {
		p, ok := datadir.PlaceOf(first)
		if !ok || p.Kept == datadir.Never || p.Folder != below {
			return unfit("%q does not belong in a backup", name)
		}
		most = p.Max
	}
	if size < 0 || most > 0 && size > most {
		return unfit("%q has %d bytes, more than it may have: %d", name, size, most)
	}
	return nil
}
