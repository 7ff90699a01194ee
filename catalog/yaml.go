package catalog

import (
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/canon/yaml"
)

// Limits of YAML input.
const (
	MaxYAMLBytes     = 16 << 20 // of a whole stream
	MaxYAMLDocuments = 10_000
	maxYAMLValues    = 200_000 // of one document, aliases expanded
)

// ManifestsFromYAML converts each document of a YAML stream to JSON and drops empty documents. Numbers keep their
// exact value, also beyond 64 bits. Aliases and merge keys are expanded, to at most 200,000 values per document.
// Refused are duplicate keys, keys that are not scalars, tags other than YAML's own, infinities, NaN, and numbers
// with leading zeros, which YAML versions read differently. The stream has at most 16 MiB and 10,000 documents.
//
// Errors: E3008 with line and column; ParseManifest checks whether the JSON is a manifest.
func ManifestsFromYAML(data []byte) ([][]byte, error) {
	if len(data) > MaxYAMLBytes {
		return nil, badYAML(0, "size", fmt.Sprintf("the YAML has %d bytes; at most %d are read", len(data), MaxYAMLBytes))
	}
	var out [][]byte
	n := 0
	for doc, err := range yaml.Documents(data, yaml.Options{Bytes: MaxYAMLBytes, Values: maxYAMLValues, Depth: MaxManifestDepth, Aliases: true}) {
		if n++; n > MaxYAMLDocuments {
			return nil, badYAML(n, "documents", fmt.Sprintf("the stream holds more than %d documents", MaxYAMLDocuments))
		}
		var v any
		if err == nil {
			v, err = doc.Tree()
		}
		if err != nil {
			return nil, badYAML(n, "yaml", err.Error())
		}
		if v != nil {
			out = append(out, canon.Append(nil, v))
		}
	}
	return out, nil
}

func badYAML(doc int, rule, message string) *toolkeep.Error {
	if doc > 1 {
		message = fmt.Sprintf("document %d: %s", doc, message)
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "the YAML cannot be read: "+message,
		[]toolkeep.Fault{{Rule: rule, Message: message}})
}
