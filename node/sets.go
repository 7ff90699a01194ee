package node

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
	"github.com/toolkeep/toolkeep/face/mcpserver"
)

// toolSets are the sets at /mcp/sets/{name}.
type toolSets map[string]*mcpserver.Set

// setEntry is one set as the file has it.
type setEntry struct {
	Title        string   `yaml:"title"`
	Instructions string   `yaml:"instructions"`
	Tools        []string `yaml:"tools"`
	Namespaces   []string `yaml:"namespaces"`
	Categories   []string `yaml:"categories"`
	Tags         []string `yaml:"tags"`
}

var setName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// readSets reads the file of sets: a map of names to sets. What is not known in
// it is refused.
func readSets(file string) (toolSets, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("mcp.sets_file cannot be read: %w", err)
	}
	var entries map[string]setEntry
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("mcp.sets_file %s: %w", file, err)
	}
	sets := make(toolSets, len(entries))
	for name, e := range entries {
		if !setName.MatchString(name) {
			return nil, fmt.Errorf("mcp.sets_file %s: the name %q does not match %s", file, name, setName)
		}
		if len(e.Tools)+len(e.Namespaces)+len(e.Categories)+len(e.Tags) == 0 {
			return nil, fmt.Errorf("mcp.sets_file %s: the set %s names no tools, namespaces, categories or tags", file, name)
		}
		for _, p := range e.Tools {
			if _, err := path.Match(p, ""); err != nil {
				return nil, fmt.Errorf("mcp.sets_file %s: in the set %s, %q is no pattern", file, name, p)
			}
		}
		sets[name] = &mcpserver.Set{Title: e.Title, Instructions: e.Instructions, Tools: e.Tools, Namespaces: e.Namespaces,
			Categories: e.Categories, Tags: e.Tags}
	}
	return sets, nil
}

// find gives a set. Who may see none of its tools finds it empty.
func (s toolSets) find(_ *toolkeep.Principal, name string) (*mcpserver.Set, bool) {
	set, ok := s[name]
	return set, ok
}

// member gives the tools of a set as a choice.
func (s toolSets) member(p *toolkeep.Principal, name string) (func(*toolkeep.Tool) bool, bool) {
	set, ok := s.find(p, name)
	if !ok {
		return nil, false
	}
	return set.Includes, true
}
