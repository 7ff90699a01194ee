package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/executor/filetool"
)

// buildFiles makes the executor of files with the folders that the operator opens.
func (n *Node) buildFiles(context.Context) error {
	base, c, err := fileConfig(n.config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return fmt.Errorf("the folder of files cannot be made: %w", err)
	}
	n.files, err = filetool.New(c)
	return err
}

// fileConfig reads files.roots; base is where relative ones lie. E3008 where one
// cannot be used.
func fileConfig(c *config.Config) (base string, fc filetool.Config, err error) {
	base, err = filepath.Abs(filepath.Join(c.Data, "files"))
	if err != nil {
		return "", fc, fmt.Errorf("the data directory has no absolute path: %w", err)
	}
	fc.Home = filepath.Join(base, "{tenant}")
	if roots := c.Files.Roots; !slices.Equal(roots, []string{"none"}) {
		for _, text := range roots {
			r := filetool.ParseRoot(text)
			if !filepath.IsAbs(r.Path) && r.Path != "" {
				r.Path = base + "/" + r.Path // not cleaned, so that ".." is seen
			}
			fc.Roots = append(fc.Roots, r)
		}
	}
	if err := fc.Validate(); err != nil {
		return "", fc, toolkeep.NewError(toolkeep.InvalidManifest, "files.roots: %s", toolkeep.AsError(err).Message)
	}
	return base, fc, nil
}
