package mcpregistry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/promptscan"
)

// Limits of one entry.
const (
	maxText   = 4096 // bytes of one text
	maxWays   = 20   // packages, and remotes
	maxInputs = 100  // environment variables, headers or arguments of one of them
	maxFound  = 20   // findings
)

// nameForm is the form of names in the published schema, but for names that begin with a dot or a hyphen.
var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.-]{0,99}/[a-zA-Z0-9._-]{1,99}$`)

// Entry is a version of a server as the registry has it.
type Entry struct {
	Server      Server    `json:"server"`
	Status      string    `json:"status"` // active, deprecated or deleted
	Why         string    `json:"status_message,omitempty"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	Latest      bool      `json:"is_latest"`
	// Digest is the SHA-256 of the canonical JSON of the server object as it came: a registry does not sign, and an entry of
	// one version should never change.
	Digest string `json:"digest"`
	// Findings are texts of it that a person should read before believing them.
	Findings []Finding `json:"findings,omitempty"`
}

// Finding is a text of an entry that hides characters or addresses a model.
type Finding struct {
	Rule     string              `json:"rule"`
	Severity promptscan.Severity `json:"severity"`
	Pointer  string              `json:"pointer"` // into the server object
	Text     string              `json:"text"`
	Message  string              `json:"message"`
}

// Server is a server.json of the schema of 2025-12-11, without what only shows it.
type Server struct {
	Name        string    `json:"name"`
	Title       string    `json:"title,omitempty"`
	Description string    `json:"description,omitempty"`
	Version     string    `json:"version"`
	WebsiteURL  string    `json:"websiteUrl,omitempty"`
	Repository  *struct { // where its source is
		URL string `json:"url"`
	} `json:"repository,omitempty"`
	Packages []Package `json:"packages,omitempty"`
	Remotes  []Remote  `json:"remotes,omitempty"`
}

// Package is one way to run a server.
type Package struct {
	RegistryType    string `json:"registryType"`
	RegistryBaseURL string `json:"registryBaseUrl,omitempty"`
	Identifier      string `json:"identifier"`
	Version         string `json:"version,omitempty"`
	FileSHA256      string `json:"fileSha256,omitempty"`
	RuntimeHint     string `json:"runtimeHint,omitempty"`
	Transport       struct {
		Type string `json:"type"`
	} `json:"transport"`
	RuntimeArguments     []Argument `json:"runtimeArguments,omitempty"`
	PackageArguments     []Argument `json:"packageArguments,omitempty"`
	EnvironmentVariables []Input    `json:"environmentVariables,omitempty"`
}

// Remote is an address where a server runs already.
type Remote struct {
	Type      string           `json:"type"` // streamable-http or sse
	URL       string           `json:"url"`
	Headers   []Input          `json:"headers,omitempty"`
	Variables map[string]Input `json:"variables,omitempty"`
}

// Input is a value that a server needs: of a variable of the environment, a header, an argument, or within one of them.
type Input struct {
	Name        string           `json:"name,omitempty"`
	Description string           `json:"description,omitempty"`
	Required    bool             `json:"isRequired,omitempty"`
	Secret      bool             `json:"isSecret,omitempty"`
	Format      string           `json:"format,omitempty"` // string, number, boolean or filepath
	Default     string           `json:"default,omitempty"`
	Placeholder string           `json:"placeholder,omitempty"`
	Choices     []string         `json:"choices,omitempty"`
	Value       string           `json:"value,omitempty"` // fixed, with {variables}
	Variables   map[string]Input `json:"variables,omitempty"`
}

// Argument is one of a command.
type Argument struct {
	Input
	Type      string `json:"type"` // named or positional
	ValueHint string `json:"valueHint,omitempty"`
	Repeated  bool   `json:"isRepeated,omitempty"`
}

// readEntry reads what a registry says of one server.
func readEntry(v any) (*Entry, error) {
	answer, _ := v.(map[string]any)
	object, ok := answer["server"].(map[string]any)
	if !ok {
		return nil, errors.New("an entry has no server")
	}
	e := &Entry{Digest: canon.Digest(canon.Append(nil, object)), Status: "active"}
	object = maps.Clone(object)
	for _, unused := range []string{"_meta", "icons"} {
		delete(object, unused)
	}
	e.inspect("", object)
	tidied, err := tidyTree(object)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(canon.Append(nil, tidied), &e.Server); err != nil {
		return nil, errors.New("a server.json has a member of another type than its schema says")
	}
	s := &e.Server
	if !nameForm.MatchString(s.Name) || s.Version == "" || len(s.Version) > 255 {
		return nil, fmt.Errorf("the name %q or the version %q of a server is none", s.Name, s.Version)
	}
	if err := s.bounded(); err != nil {
		return nil, fmt.Errorf("%s@%s: %w", s.Name, s.Version, err)
	}
	about, _ := answer["_meta"].(map[string]any)
	official, _ := about["io.modelcontextprotocol.registry/official"].(map[string]any)
	text := func(member string) string {
		s, _ := official[member].(string)
		return toolkeep.ClipBytes(tidy(s), maxText)
	}
	if status := text("status"); status != "" {
		e.Status = status
	}
	e.Why = text("statusMessage")
	e.Latest, _ = official["isLatest"].(bool)
	e.PublishedAt, _ = time.Parse(time.RFC3339Nano, text("publishedAt"))
	return e, nil
}

// bounded refuses more ways and inputs than a person can read.
func (s *Server) bounded() error {
	if len(s.Packages) > maxWays || len(s.Remotes) > maxWays {
		return fmt.Errorf("it has more than %d packages or remotes", maxWays)
	}
	for _, p := range s.Packages {
		if len(p.inputs()) > maxInputs || len(p.EnvironmentVariables)+len(p.RuntimeArguments)+len(p.PackageArguments) > maxInputs {
			return fmt.Errorf("a package of it has more than %d variables and arguments", maxInputs)
		}
	}
	for _, r := range s.Remotes {
		if len(r.inputs()) > maxInputs || len(r.Headers) > maxInputs {
			return fmt.Errorf("a remote of it has more than %d headers and variables", maxInputs)
		}
	}
	return nil
}

// inspect finds what descriptions of tools are inspected for, in all texts and names.
func (e *Entry) inspect(at string, v any) {
	switch v := v.(type) {
	case string:
		for _, f := range append(promptscan.Characters(v), promptscan.Instructions(toolkeep.ClipBytes(v, maxText))...) {
			if len(e.Findings) < maxFound {
				e.Findings = append(e.Findings, Finding{f.Rule, f.Severity, tidy(toolkeep.ClipBytes(at, 200)), f.Text, f.Message})
			}
		}
	case []any:
		for i, one := range v {
			e.inspect(fmt.Sprintf("%s/%d", at, i), one)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			e.inspect(at+"/(name)", name)
			e.inspect(at+canon.Pointer(name), v[name])
		}
	}
}

// tidyTree is a tree with tidy texts. A text or name over 4096 bytes is an error.
func tidyTree(v any) (any, error) {
	switch v := v.(type) {
	case string:
		if len(v) > maxText {
			return nil, fmt.Errorf("a server.json has a text over %d bytes", maxText)
		}
		return tidy(v), nil
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			var err error
			if out[i], err = tidyTree(one); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, one := range v {
			clean, err := tidyTree(one)
			if err != nil {
				return nil, err
			}
			if len(name) > maxText {
				return nil, fmt.Errorf("a server.json has a name over %d bytes", maxText)
			}
			if tidy(name) != name { // two could become one
				return nil, errors.New("a server.json has a name with characters that do not print")
			}
			out[name] = clean
		}
		return out, nil
	}
	return v, nil
}

// tidy takes out what does not print or prints as nothing, such as the begin of an escape sequence or a change of the direction of writing;
// white space becomes a blank.
func tidy(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector), r == 0x2800: // print as nothing
			return -1
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return -1
	}, s)
}
