package schema

import (
	"context"
	"errors"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/canon/yaml"
)

// DecodeYAML reads one YAML document that the schema of settings describes. The faults are of the
// document; the error is of the schema or of what is decoded into. Without both, into is set.
func DecodeYAML(settings, document []byte, o yaml.Options, into any) ([]toolkeep.Fault, error) {
	doc, err := yaml.One(document, o)
	if err == nil && doc == nil {
		err = errors.New("it is empty")
	}
	var tree any
	if err == nil {
		tree, err = doc.Tree()
	}
	if err != nil {
		return []toolkeep.Fault{{Rule: "yaml", Message: "not readable as YAML: " + err.Error()}}, nil
	}
	s, err := Compile(settings)
	if err != nil {
		return nil, err
	}
	if faults := s.Validate(context.Background(), tree); len(faults) > 0 {
		return faults, nil
	}
	return nil, strict.Unmarshal(canon.Append(nil, tree), into)
}
