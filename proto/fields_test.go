// Package proto_test guards the gRPC contract: the numbers that the Execution
// document fixes, and every number that was ever given out.
package proto_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/toolkeep/toolkeep/proto/l03v1"
)

var update = flag.Bool("update", false, "add new fields, values and methods to testdata/l03.txt; none ever leaves it")

const table = "testdata/l03.txt"

// facts are all that a client of an older contract relies on, a line each: fields
// with number, cardinality and type, enum values with number, methods with their
// messages. Numbers and types are the wire; names are JSON and reflection.
func facts() []string {
	var out []string
	file := l03v1.File_agentic_l03_v1_l03_proto
	var message func(protoreflect.MessageDescriptor)
	enums := func(list protoreflect.EnumDescriptors) {
		for i := range list.Len() {
			e := list.Get(i)
			for j := range e.Values().Len() {
				v := e.Values().Get(j)
				out = append(out, fmt.Sprintf("enum %s %d %s", e.FullName(), v.Number(), v.Name()))
			}
		}
	}
	message = func(m protoreflect.MessageDescriptor) {
		if m.IsMapEntry() {
			return
		}
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			out = append(out, fmt.Sprintf("field %s %d %s %s", m.FullName(), f.Number(), f.Name(), typeOf(f)))
		}
		enums(m.Enums())
		for i := range m.Messages().Len() {
			message(m.Messages().Get(i))
		}
	}
	enums(file.Enums())
	for i := range file.Messages().Len() {
		message(file.Messages().Get(i))
	}
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			out = append(out, fmt.Sprintf("method %s (%s stream=%t) (%s stream=%t)", m.FullName(),
				m.Input().FullName(), m.IsStreamingClient(), m.Output().FullName(), m.IsStreamingServer()))
		}
	}
	slices.Sort(out)
	return out
}

func typeOf(f protoreflect.FieldDescriptor) string {
	name := func(f protoreflect.FieldDescriptor) string {
		switch f.Kind() {
		case protoreflect.MessageKind:
			return string(f.Message().FullName())
		case protoreflect.EnumKind:
			return string(f.Enum().FullName())
		}
		return f.Kind().String()
	}
	switch {
	case f.IsMap():
		return "map<" + name(f.MapKey()) + "," + name(f.MapValue()) + ">"
	case f.IsList():
		return "repeated " + name(f)
	case f.ContainingOneof() != nil && !f.HasOptionalKeyword():
		return "oneof " + string(f.ContainingOneof().Name()) + " " + name(f)
	case f.HasOptionalKeyword():
		return "optional " + name(f)
	}
	return name(f)
}

// A fact that was published stays as it is: clients were built with it.
func TestNothingBreaks(t *testing.T) {
	now := facts()
	raw, err := os.ReadFile(table)
	if err != nil && !*update {
		t.Fatal(err)
	}
	published := strings.FieldsFunc(string(raw), func(r rune) bool { return r == '\n' })
	for _, f := range published {
		if !slices.Contains(now, f) {
			t.Errorf("gone or changed: %s\nReserve the number and give the new meaning a new one.", f)
		}
	}
	if t.Failed() {
		return
	}
	if *update {
		if err := os.MkdirAll(filepath.Dir(table), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(table, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, f := range now {
		if !slices.Contains(published, f) {
			t.Errorf("new and not in %s: %s\nRun go test ./proto -update.", table, f)
		}
	}
}

// bc6 are the fields of the two messages as the Execution document has them,
// section 4.1.
var bc6 = map[string]map[string]protoreflect.FieldNumber{
	"ToolInvocationRequest": {"request_id": 1, "tool_id": 2, "agent_id": 3, "inputs": 4, "context": 5, "timeout_seconds": 6,
		"async_mode": 7, "cache_override_ttl": 8, "skip_cache": 9},
	"ToolInvocationRequest.ExecutionContext": {"plan_id": 5, "task_id": 6, "env": 7},
	"ToolInvocationResult":                   {"request_id": 1, "status": 2, "outputs": 3, "error_code": 4, "error_message": 5, "metadata": 6},
	"ToolInvocationResult.Status":            {"SUCCESS": 0, "FAILURE": 1, "TIMEOUT": 2, "NOT_FOUND": 3, "UNAUTHORIZED": 4, "VALIDATION_ERROR": 5},
	"ToolInvocationResult.ExecutionMetadata": {"execution_time_ms": 1, "timestamp_ms": 2, "tool_version": 3, "cache_hit": 4, "retry_count": 5},
}

func TestBC6Numbers(t *testing.T) {
	file := l03v1.File_agentic_l03_v1_l03_proto
	for message, fields := range bc6 {
		outer, inner, _ := strings.Cut(message, ".")
		d := file.Messages().ByName(protoreflect.Name(outer))
		for name, number := range fields {
			if inner == "Status" {
				if v := d.Enums().ByName("Status").Values().ByName(protoreflect.Name(name)); v == nil || int32(v.Number()) != int32(number) {
					t.Errorf("%s.%s is not %d", message, name, number)
				}
				continue
			}
			m := d
			if inner != "" {
				m = d.Messages().ByName(protoreflect.Name(inner))
			}
			if f := m.Fields().ByName(protoreflect.Name(name)); f == nil || f.Number() != number {
				t.Errorf("%s.%s is not %d", message, name, number)
			}
		}
	}
}

// Where the Execution document itself is at hand, the table above is held
// against it.
func TestBC6Document(t *testing.T) {
	const document = "../../shared/seeds/003_2938eb9b96f9ce5f.txt"
	raw, err := os.ReadFile(document)
	if os.IsNotExist(err) {
		t.Logf("%s is not here; the table in this file alone was checked", document)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	read := parseBC6(string(raw))
	for message, fields := range bc6 {
		for name, number := range fields {
			if read[message+"."+name] != fmt.Sprint(number) {
				t.Errorf("%s.%s is %q in the document, %d here", message, name, read[message+"."+name], number)
			}
			delete(read, message+"."+name)
		}
	}
	for name, number := range read {
		t.Errorf("the document has %s = %s, the table not", name, number)
	}
}

var (
	opens = regexp.MustCompile(`^\s*(message|enum) (\w+) \{`)
	gives = regexp.MustCompile(`^\s*(?:[\w<>, .]+ )?(\w+) = (\d+);`)
)

// parseBC6 reads the two messages out of the document's prose.
func parseBC6(text string) map[string]string {
	out := map[string]string{}
	var path []string
	for _, line := range strings.Split(text, "\n") {
		if m := opens.FindStringSubmatch(line); m != nil {
			if len(path) > 0 || strings.HasPrefix(m[2], "ToolInvocation") {
				path = append(path, m[2])
			}
			continue
		}
		switch m := gives.FindStringSubmatch(line); {
		case len(path) == 0:
		case strings.TrimSpace(line) == "}":
			path = path[:len(path)-1]
		case m != nil:
			out[strings.Join(path, ".")+"."+m[1]] = m[2]
		}
	}
	return out
}
