package mcpserver

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/canon/yaml"
)

// maxSetsFile is the largest file of sets, in bytes and in values.
const maxSetsFile = 1 << 20

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
	sets, err := decodeSets(raw)
	if err != nil {
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
				return nil, fmt.Errorf("mcp.sets_file %s: in the set %s, %q is not a pattern", file, name, p)
			}
		}
	}
	return sets, nil
}

func decodeSets(raw []byte) (Sets, error) {
	doc, err := yaml.One(raw, yaml.Options{Bytes: maxSetsFile, Values: maxSetsFile, Depth: 64, Aliases: true})
	if err != nil || doc == nil {
		return nil, err
	}
	tree, err := doc.Tree()
	if err != nil {
		return nil, err
	}
	if _, ok := tree.(map[string]any); !ok {
		return nil, errors.New("it must map the names of sets to sets")
	}
	var sets Sets
	err = json.Unmarshal(canon.Append(nil, tree), &sets, json.RejectUnknownMembers(true))
	return sets, err
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
