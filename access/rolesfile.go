package access

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// ReadRoles reads roles in YAML from inline, the content of the key roles in the setting
// access.roles, and from file, the setting access.roles_file; either may be empty.
func ReadRoles(inline []byte, file string) ([]Role, error) {
	var all []Role
	if len(inline) > 0 {
		text := "roles:\n  " + strings.ReplaceAll(strings.TrimRight(string(inline), "\n"), "\n", "\n  ") + "\n"
		roles, err := ParseRoles([]byte(text))
		if err != nil {
			return nil, withoutLines(err)
		}
		all = append(all, roles...)
	}
	if file == "" {
		return all, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the roles file cannot be read: %w", err)
	}
	roles, err := ParseRoles(raw)
	if err != nil {
		return nil, err
	}
	return append(all, roles...), nil
}

var lineNumber = regexp.MustCompile(`line \d+(, column \d+)?: `)

// withoutLines removes line numbers from an error about inline roles: they refer to a
// text that the operator never sees. The pointers give the place.
func withoutLines(err error) error {
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Message = lineNumber.ReplaceAllString(e.Message, "")
	if faults, ok := e.Details["errors"].([]toolkeep.Fault); ok {
		for i := range faults {
			faults[i].Message = lineNumber.ReplaceAllString(faults[i].Message, "")
		}
	}
	return e
}
