package policy

import (
	"embed"
	"io/fs"
)

//go:embed starter/*.rego
var starter embed.FS

// Starter returns a policy to start from: it changes nothing, and has examples and a test.
func Starter() Files {
	list, err := fs.ReadDir(starter, "starter")
	if err != nil {
		panic(err) // embedded
	}
	files := Files{}
	for _, e := range list {
		raw, err := starter.ReadFile("starter/" + e.Name())
		if err != nil {
			panic(err)
		}
		files[e.Name()] = raw
	}
	return files
}
