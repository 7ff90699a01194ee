//go:build !unix

package minilm

func mapFile(path string) ([]byte, func() error, error) { return readWhole(path) }
