package httptool

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// maxDeep bounds the nesting of deepObject.
const maxDeep = 16

// How deepObject writes the elements of a list; OpenAPI leaves it undefined.
const (
	listIndices  = "indices"  // a[0]=1&a[1]=2, the default
	listBrackets = "brackets" // a[]=1&a[]=2
	listRepeat   = "repeat"   // a=1&a=2
)

var deepLists = []string{listIndices, listBrackets, listRepeat}

// deepList is how lists are written, and whether one that has no indices is around the value.
type deepList struct {
	how    string
	inside bool
}

// readDeepLists reads deep_lists; listIndices, the default, is "".
func readDeepLists(o *bindings.Object, style string) string {
	how := o.Text("deep_lists", false)
	switch {
	case how == "":
	case style != "deepObject":
		o.Fault("deep_lists", "unsupported", "deep_lists applies to style deepObject alone")
	case !slices.Contains(deepLists, how):
		o.Fault("deep_lists", "enum", "the elements of a list are written with %s, not %q", strings.Join(deepLists, ", "), how)
	}
	if how == listIndices {
		how = ""
	}
	return how
}

// deep adds the pairs of a value in style deepObject: a property is name[property], an element of a
// list is name[index] or what list says.
func (w *pairs) deep(name, at string, v any, esc escaping, list deepList, depth int) *toolkeep.Error {
	if depth > maxDeep {
		return unsafe(at, "the argument is nested over %d levels deep, which deepObject does not send", maxDeep)
	}
	switch t := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(t)) {
			if strings.ContainsAny(key, "[]") {
				return unsafe(at+canon.Pointer(key), "the property name %q has a bracket, which deepObject cannot send", key)
			}
			if t[key] == nil {
				continue
			}
			if err := w.deep(name+"["+key+"]", at+canon.Pointer(key), t[key], esc, list, depth+1); err != nil {
				return err
			}
		}
		return nil
	case []any:
		return w.deepElements(name, at, t, esc, list, depth)
	}
	s, ok := plain(v)
	if !ok {
		return unsafe(at, "null within a list cannot be sent as deepObject")
	}
	w.add(name, s, esc)
	return nil
}

func (w *pairs) deepElements(name, at string, elements []any, esc escaping, list deepList, depth int) *toolkeep.Error {
	var keys []string
	for i, el := range elements {
		here, to := at+"/"+strconv.Itoa(i), name
		switch list.how {
		case listBrackets:
			to += "[]"
		case "":
			to += "[" + strconv.Itoa(i) + "]"
		}
		if list.how != "" {
			// Without indices the upstream tells where one element ends by its properties alone.
			obj, isObject := el.(map[string]any)
			_, isList := el.([]any)
			own := sent(obj)
			switch {
			case isList || list.inside:
				return unsafe(here, "a list within a list cannot be sent without indices: its elements could not be told apart")
			case isObject && (list.how == listRepeat || len(own) == 0) || i > 0 && !slices.Equal(keys, own):
				return unsafe(here, "the objects of a list cannot be sent without indices: they could not be told apart")
			}
			keys = own
		}
		next := list
		next.inside = list.how != ""
		if err := w.deep(to, here, el, esc, next, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// sent lists the properties that are not null.
func sent(obj map[string]any) []string {
	var names []string
	for _, k := range slices.Sorted(maps.Keys(obj)) {
		if obj[k] != nil {
			names = append(names, k)
		}
	}
	return names
}
