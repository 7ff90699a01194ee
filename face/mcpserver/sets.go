package mcpserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/toolkeep/toolkeep"
)

// Sets are the sets at /mcp/sets/{name}, by name.
type Sets map[string]*Set

var setName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// ReadSets reads a file that maps names to sets; for "" there are none. Unknown fields are refused.
func ReadSets(file string) (Sets, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("mcp.sets_file cannot be read: %w", err)
	}
	var sets Sets
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&sets); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("mcp.sets_file %s: %w", file, err)
	}
	for name, e := range sets {
		if !setName.MatchString(name) {
			return nil, fmt.Errorf("mcp.sets_file %s: the name %q does not match %s", file, name, setName)
		}
		if e == nil || len(e.Tools)+len(e.Namespaces)+len(e.Categories)+len(e.Tags) == 0 {
			return nil, fmt.Errorf("mcp.sets_file %s: the set %s names no tools, namespaces, categories or tags", file, name)
		}
		for _, p := range e.Tools {
			if _, err := path.Match(p, ""); err != nil {
				return nil, fmt.Errorf("mcp.sets_file %s: in the set %s, %q is no pattern", file, name, p)
			}
		}
	}
	return sets, nil
}

// Find returns a set. For a principal that sees none of its tools the set is empty.
func (s Sets) Find(_ *toolkeep.Principal, name string) (*Set, bool) {
	set, ok := s[name]
	return set, ok
}

// Member returns the tools of a set as a filter.
func (s Sets) Member(p *toolkeep.Principal, name string) (func(*toolkeep.Tool) bool, bool) {
	set, ok := s.Find(p, name)
	if !ok {
		return nil, false
	}
	return set.Includes, true
}
