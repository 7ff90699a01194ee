package main

import (
	"fmt"
	"iter"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"

	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/registry"
	"github.com/theory/jsonpath/spec"
)

// Bounds of a jsonpath.
const (
	pathTime       = 10 * time.Second // to find and to print
	maxDescendants = 2                // times ..: each multiplies the work by the depth of the JSON
)

// quoted are the names and texts of an expression as its parser writes them.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// parsePath reads an expression of RFC 9535, or one in braces that begins with a dot, as kubectl has them.
func parsePath(expr string) (*jsonpath.Path, error) {
	if inner, ok := strings.CutPrefix(expr, "{"); ok && strings.HasSuffix(inner, "}") {
		expr = strings.TrimSuffix(inner, "}")
	}
	if strings.HasPrefix(expr, ".") || strings.HasPrefix(expr, "[") {
		expr = "$" + expr
	}
	path, err := jsonpath.NewParser(jsonpath.WithRegistry(pathFunctions())).Parse(expr)
	if err != nil {
		return nil, fmt.Errorf("%s is no jsonpath of RFC 9535, such as $.tools[*].tool_id: %w", expr, err)
	}
	if strings.Count(quoted.ReplaceAllString(path.String(), ""), "..") > maxDescendants {
		return nil, fmt.Errorf("a jsonpath has at most %d times ..; name members in place of others", maxDescendants)
	}
	return path, nil
}

// pathFunctions are the functions of RFC 9535. The library's match and search break off where the pattern is a member
// that is absent, and its match takes a|b for what begins with a or ends with b.
func pathFunctions() *registry.Registry {
	of := registry.New()
	for _, name := range []string{"match", "search"} {
		f := of.Get(name)
		was := *f
		*f = *spec.Extension(name, spec.FuncLogical, was.Validate, func(args []spec.PathValue) spec.PathValue {
			pattern := spec.ValueFrom(args[1])
			if pattern == nil {
				return spec.LogicalFalse
			}
			if text, ok := pattern.Value().(string); ok && name == "match" {
				if _, err := syntax.Parse(text, syntax.Perl); err != nil { // such as a)(b, which the group would mend
					return spec.LogicalFalse
				}
				pattern = spec.Value("(?:" + text + ")")
			}
			return was.Evaluate([]spec.PathValue{args[0], pattern})
		})
	}
	return of
}

// findPath passes on what the path finds in v. After an error, take can still be running.
func findPath(path *jsonpath.Path, v any, within time.Duration, take func(any) error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("the expression broke off: %v", p)
			}
		}()
		done <- walkPath(v, v, path.Query().Segments(), take)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(within):
		return fmt.Errorf("it took longer than %s", within)
	}
}

// walkPath passes on what the rest of a path finds from v on, in the order of RFC 9535. That leaves the order of an
// object's members open, which the tree does not have: they come by their names.
func walkPath(v, root any, rest []*spec.Segment, take func(any) error) error {
	if len(rest) == 0 {
		return take(v)
	}
	for _, sel := range rest[0].Selectors() {
		filter, filters := sel.(*spec.FilterSelector)
		if _, all := sel.(spec.WildcardSelector); all || filters {
			for child := range childrenOf(v) {
				if filters && !filter.Eval(child, root) {
					continue
				}
				if err := walkPath(child, root, rest[1:], take); err != nil {
					return err
				}
			}
			continue
		}
		for _, found := range sel.Select(v, root) {
			if err := walkPath(found, root, rest[1:], take); err != nil {
				return err
			}
		}
	}
	if rest[0].IsDescendant() {
		for child := range childrenOf(v) {
			if err := walkPath(child, root, rest, take); err != nil {
				return err
			}
		}
	}
	return nil
}

func childrenOf(v any) iter.Seq[any] {
	return func(yield func(any) bool) {
		switch v := v.(type) {
		case []any:
			for _, child := range v {
				if !yield(child) {
					return
				}
			}
		case map[string]any:
			for _, name := range sortedKeys(v) {
				if !yield(v[name]) {
					return
				}
			}
		}
	}
}
