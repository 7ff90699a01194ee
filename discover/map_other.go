//go:build !unix

package discover

import (
	"errors"
	"os"
)

const mapsFiles = false

func mapPart(*os.File, int64, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) error { return nil }
