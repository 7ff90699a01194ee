// Package contracts embeds the documents that other systems rely on, so that
// the binary and the files of this directory cannot differ.
package contracts

import _ "embed"

//go:embed manifest.schema.json
var manifestSchema string

//go:embed errors.csv
var errorsCSV string

//go:embed l03.proto
var protoL03 string

// ManifestSchema is the JSON Schema (2020-12) of a tool manifest.
func ManifestSchema() []byte { return []byte(manifestSchema) }

// ErrorsCSV is the whole error catalogue, a header line first.
func ErrorsCSV() string { return errorsCSV }

// Proto is the protocol definition of the gRPC face.
func Proto() string { return protoL03 }
