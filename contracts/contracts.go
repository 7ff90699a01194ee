// Package contracts embeds what the binary needs of the documents that other
// systems rely on, so that the binary and the files of this directory cannot
// differ. errors.csv and l03.proto enter through generated code.
package contracts

import _ "embed"

//go:embed manifest.schema.json
var manifestSchema string

// ManifestSchema is the JSON Schema (2020-12) of a tool manifest.
func ManifestSchema() []byte { return []byte(manifestSchema) }

//go:embed folder.schema.json
var folderSchema string

// FolderSchema is the JSON Schema (2020-12) of toolkeep.yaml in a folder of configuration.
func FolderSchema() []byte { return []byte(folderSchema) }
