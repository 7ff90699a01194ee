package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolkeep/toolkeep/executor/filetool"
)

// buildFiles makes the executor of files with the folders that the operator opens.
func (n *Node) buildFiles() error {
	base, err := filepath.Abs(filepath.Join(n.config.Data, "files"))
	if err != nil {
		return fmt.Errorf("the data directory has no absolute path: %w", err)
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return fmt.Errorf("the folder of files cannot be made: %w", err)
	}
	c := filetool.Config{Home: filepath.Join(base, "{tenant}")}
	if roots := n.config.Files.Roots; !slices.Equal(roots, []string{"none"}) {
		for _, text := range roots {
			r := filetool.ParseRoot(text)
			if !filepath.IsAbs(r.Path) && r.Path != "" {
				r.Path = filepath.Join(base, r.Path)
			}
			c.Roots = append(c.Roots, r)
		}
	}
	n.files, err = filetool.New(c)
	return err
}
