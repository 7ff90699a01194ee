package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/reload"
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

// rolesEvery is how often the file of roles is looked at.
const rolesEvery = 500 * time.Millisecond

// openRoles takes the custom roles.
func (a *Access) openRoles() (err error) {
	c := &a.config
	if c.RolesFile == "" && c.RolesText == nil {
		return a.SetRoles(c.Roles)
	}
	read := func() (*[]Role, error) {
		own, err := ReadRoles(c.RolesText, c.RolesFile)
		if err == nil {
			_, faults := compile(own)
			err = rolesFault(faults)
		}
		return &own, err
	}
	own, err := read()
	if err == nil && c.RolesFile != "" {
		a.roles, err = reload.Open(reload.Config[*[]Role]{What: "the file of roles (access.roles_file)", Paths: []string{c.RolesFile}, Read: read, Every: rolesEvery, Now: c.Clock, Log: c.Log})
		own = a.roles.Get()
	}
	if err != nil {
		return err
	}
	return a.SetRoles(*own)
}

// followRoles takes the roles of the file again whenever it changes, until ctx ends.
func (a *Access) followRoles(ctx context.Context) {
	for last := a.roles.Get(); toolkeep.Sleep(ctx, rolesEvery); {
		if own := a.roles.Get(); own != last {
			last = own
			if err := a.SetRoles(*own); err != nil { // it was read without faults
				a.config.Log.Error("the file of roles has changed and was not taken", "error", err)
			}
		}
	}
}

// RolesHealth is why a changed file of roles cannot be taken, nil while there is none.
func (a *Access) RolesHealth(ctx context.Context) error { return a.roles.Health(ctx) }

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
