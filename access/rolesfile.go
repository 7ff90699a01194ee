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
			// Line numbers refer to a text that the operator never sees; the pointers give the place.
			return nil, relined(err, func(string) string { return "" })
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
		return nil, relined(err, func(line string) string { return file + ", " + line })
	}
	return append(all, roles...), nil
}

var lineNumber = regexp.MustCompile(`line \d+(, column \d+)?: `)

// relined replaces the line numbers in an error of ParseRoles.
func relined(err error, by func(line string) string) error {
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Message = lineNumber.ReplaceAllStringFunc(e.Message, by)
	if faults, ok := e.Details["errors"].([]toolkeep.Fault); ok {
		for i := range faults {
			faults[i].Message = lineNumber.ReplaceAllStringFunc(faults[i].Message, by)
		}
	}
	return e
}
