package access

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// ReadRoles reads roles in YAML from the value of the setting access.roles, which is what
// stands under the key roles, and from the file of access.roles_file; both may be empty.
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

var lineNumber = regexp.MustCompile(`line \d+: `)

// withoutLines takes line numbers out of an error about roles: they would be
// those of a text that nobody sees. The pointers say where.
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
