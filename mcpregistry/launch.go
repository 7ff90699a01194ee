package mcpregistry

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
)

// Kinds of ways that a server can be added. Others, such as mcpb, nuget and cargo, are refused.
const (
	NPM     = "npm"    // npx
	PyPI    = "pypi"   // uvx
	OCI     = "oci"    // docker or podman
	Address = "remote" // where it runs already
)

// Choice is what the one who adds a server says.
type Choice struct {
	Kind    string              // npm, pypi, oci or remote; "" for the first that can be used
	Runtime string              // of oci: docker or podman; default the entry's hint if that is one of them, else docker
	Values  map[string][]string // values of inputs by name; several for an argument that may be repeated
	Secrets map[string]string   // references to secrets, alone or behind one word ("Bearer env://X"), by the name of the input
}

// Launch is how a server is started or reached, in the terms of Toolkeep's definition of an MCP server.
type Launch struct {
	What      string            `json:"what"` // such as "the npm package x, version 1.0.2"
	Transport string            `json:"transport"`
	Command   []string          `json:"command,omitempty"`
	Env       map[string]string `json:"env,omitempty"` // "text:" and a literal, or a reference
	URL       string            `json:"url,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Notes     []string          `json:"notes,omitempty"` // what else to know before it is added
}

// Ways describes each package and remote in order, with the reason why one cannot be used, "" for those that can.
func (s *Server) Ways() (ways []Way) {
	for i := range s.Packages {
		p := &s.Packages[i]
		w := Way{Kind: p.RegistryType, What: p.what(), Inputs: p.inputs()}
		if _, err := p.program(); err != nil {
			w.Unusable = err.Error()
		}
		ways = append(ways, w)
	}
	for i := range s.Remotes {
		r := &s.Remotes[i]
		w := Way{Kind: Address, What: r.URL + " (" + r.Type + ")", Inputs: r.inputs()}
		if _, err := r.transport(); err != nil {
			w.Unusable = err.Error()
		}
		ways = append(ways, w)
	}
	return ways
}

// Way is one package or remote of a server.
type Way struct {
	Kind     string      `json:"kind"`
	What     string      `json:"what"`
	Unusable string      `json:"unusable,omitempty"`
	Inputs   []UserInput `json:"inputs,omitempty"`
}

// UserInput is an input that can be given when a server is added.
type UserInput struct {
	Input
	Where string `json:"where"` // env, header, argument or variable
}

// Launch plans how a server is started or reached.
//
// Errors: E3301 with details.errors, one for each input that is missing or wrong; E3011 nothing of the entry can be used.
func (s *Server) Launch(c Choice) (*Launch, error) {
	var reasons []string
	ways := s.Ways()
	for i, w := range ways {
		switch {
		case c.Kind != "" && w.Kind != c.Kind:
		case w.Unusable != "":
			reasons = append(reasons, w.What+": "+w.Unusable)
		default:
			f := &filler{choice: c, inputs: w.Inputs, used: map[string]bool{}}
			l := &Launch{What: w.What}
			if i < len(s.Packages) {
				s.Packages[i].launch(f, l)
			} else {
				s.Remotes[i-len(s.Packages)].launch(f, l)
			}
			f.readable(l)
			return l, f.done(s.Name)
		}
	}
	if len(reasons) == 0 {
		kinds := []string{}
		for _, w := range ways {
			kinds = append(kinds, w.Kind)
		}
		slices.Sort(kinds)
		has := "it has " + strings.Join(slices.Compact(kinds), ", ")
		if len(kinds) == 0 {
			has = "it has neither packages nor remotes"
		}
		return nil, toolkeep.NewError(toolkeep.ImportFailed, "%s cannot be added that way: %s", s.Name, has)
	}
	return nil, toolkeep.NewError(toolkeep.ImportFailed, "%s cannot be added: %s. What it needs may be written by hand: toolkeep import mcp NAME -- COMMAND ARGS…", s.Name, strings.Join(reasons, "; "))
}

func (p *Package) what() string {
	if p.RegistryType == OCI {
		return "the image " + p.image()
	}
	return strings.TrimSuffix(fmt.Sprintf("the %s package %s, version %s", p.RegistryType, p.Identifier, p.Version), ", version ")
}

var (
	npmName  = regexp.MustCompile(`^(@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*$`)
	pypiName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	// interpreter is what uvx takes for a request for Python.
	interpreter = regexp.MustCompile(`^(?i)(any|default|((c|iron|micro)?python|pypy|graalpy|pyston|pyodide|jython|cp|pp|gp)w?([._-]?[0-9].*)?)$`)
	pypiExact   = regexp.MustCompile(`^(?i)([0-9]+!)?[0-9]+(\.[0-9]+)*([._-]?(a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[._-]?[0-9]*)*(\+[a-z0-9]+([._-][a-z0-9]+)*)?$`)
	imageForm   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$`)
	imageLoose  = regexp.MustCompile(`^[^:]+(:[0-9]+/[^:]+)?(:latest)?$`) // no tag, or the one that moves with each release
)

// image is the reference of an OCI image. Older entries have the tag as the version.
func (p *Package) image() string {
	if p.Version != "" && imageLoose.MatchString(p.Identifier) && !strings.Contains(p.Identifier, "@") {
		return strings.TrimSuffix(p.Identifier, ":latest") + ":" + p.Version
	}
	return p.Identifier
}

// program returns the runtime of a package and what runs its exact version, or why it cannot be used.
func (p *Package) program() (command []string, err error) {
	switch {
	case p.Transport.Type != "stdio":
		return nil, fmt.Errorf("the package serves %s instead of stdio, and Toolkeep starts no server that it reaches by an address; start it yourself and import its URL", toolkeep.ClipBytes(p.Transport.Type, 40))
	case p.FileSHA256 != "" && p.RegistryType != "mcpb":
		return nil, fmt.Errorf("its file has a checksum that must be verified, which %s packages are not here", p.RegistryType)
	}
	switch p.RegistryType {
	case NPM:
		_, inexact := semver.StrictNewVersion(p.Version)
		switch {
		case !npmName.MatchString(p.Identifier):
			return nil, fmt.Errorf("%q is not the name of an npm package", p.Identifier)
		case inexact != nil:
			return nil, fmt.Errorf("%q is not an exact version of an npm package", p.Version)
		}
		return []string{"npx", "-y", p.Identifier + "@" + p.Version}, p.runtimeFlags("npx")
	case PyPI:
		switch {
		case !pypiName.MatchString(p.Identifier):
			return nil, fmt.Errorf("%q is not the name of a package of PyPI", p.Identifier)
		case interpreter.MatchString(p.Identifier):
			return nil, fmt.Errorf("uvx takes %q for Python itself and runs no package of that name", p.Identifier)
		case !pypiExact.MatchString(p.Version):
			return nil, fmt.Errorf("%q is not an exact version of a package of PyPI", p.Version)
		}
		return []string{"uvx", p.Identifier + "@" + p.Version}, p.runtimeFlags("uvx")
	case OCI:
		image := p.image()
		switch {
		case p.RegistryBaseURL != "" && strings.TrimRight(p.RegistryBaseURL, "/") != "https://docker.io":
			return nil, fmt.Errorf("the image is in %s; an entry names that within the image", toolkeep.ClipBytes(p.RegistryBaseURL, 200))
		case !imageForm.MatchString(image):
			return nil, fmt.Errorf("%q is not the name of an image with a tag", image)
		case imageLoose.MatchString(image):
			return nil, fmt.Errorf("the image %s has no version: it names neither a tag besides latest nor a digest", image)
		}
		return []string{"docker", "run", "-i", "--rm", image}, p.runtimeFlags("docker")
	}
	return nil, fmt.Errorf("packages of npm, pypi and oci can be run, not those of %s", toolkeep.ClipBytes(p.RegistryType, 40))
}

// flags are the arguments of runtimes that entries may give: others choose what is run, or where it comes from. true takes a value.
var flags = map[string]map[string]bool{
	"npx": {"-y": false, "--yes": false},
	"uvx": {"-p": true, "--python": true},
	"docker": {"-i": false, "--interactive": false, "--rm": false, "--init": false, "--read-only": false,
		"-e": true, "--env": true, "-v": true, "--volume": true, "--mount": true,
		"-w": true, "--workdir": true, "-m": true, "--memory": true, "--cpus": true, "--platform": true},
}

// forms are what an entry may say itself behind a flag that reaches the host: of a mount the place in the container alone, of a
// variable of the environment also its value, without which it would be that of the host.
var forms = map[string]*regexp.Regexp{
	"-v": volumeForm, "--volume": volumeForm, "-e": assignment, "--env": assignment,
	"--mount": regexp.MustCompile(`^type=bind,(src|source)=\{[A-Za-z0-9_.-]+\},(dst|destination|target)=/[^,{}]+(,(ro|readonly))?$`),
}

var (
	volumeForm = regexp.MustCompile(`^\{[A-Za-z0-9_.-]+\}:/[^:,{}]+(:ro)?$`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// reaches reports whether an argument would reach what the one who adds the server did not choose.
func (a *Argument) reaches() bool {
	form := forms[a.Name]
	if form == nil {
		return false
	}
	bad := func(v string) bool { return v != "" && !form.MatchString(v) }
	if form == assignment {
		return bad(a.Value) || bad(a.Default) || slices.ContainsFunc(a.Choices, bad)
	}
	suggests := func(in *Input) bool { return in.Default != "" || len(in.Choices) > 0 }
	for _, v := range a.Variables {
		if suggests(&v) || v.Value != "" {
			return true
		}
	}
	return bad(a.Value) || suggests(&a.Input)
}

var pythonVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*$`)

// own are flags that Toolkeep gives anyway.
var own = []string{"-y", "--yes", "-i", "--interactive", "--rm"}

func (p *Package) runtimeFlags(runtime string) error {
	for _, a := range p.RuntimeArguments {
		takes, ok := flags[runtime][a.Name]
		switch {
		case a.Type != "named":
			return fmt.Errorf("it gives %s the argument %q, which could be another package; Toolkeep takes named ones alone", runtime, toolkeep.ClipBytes(a.Value+a.ValueHint, 80))
		case !ok:
			return fmt.Errorf("it gives %s the flag %q, which is not one that Toolkeep takes from a registry", runtime, toolkeep.ClipBytes(a.Name, 80))
		case a.reaches():
			return fmt.Errorf("it gives %s %s %q; Toolkeep takes from a registry neither folders of the host nor variables of its environment, only a mount of a folder that you give", runtime, a.Name, toolkeep.ClipBytes(a.Value+a.Default, 80))
		case runtime == "uvx" && takes && !pythonVersion.MatchString(a.Value):
			return fmt.Errorf("it gives uvx the Python %q, which is not a version", toolkeep.ClipBytes(a.Value, 80))
		case !takes && (a.Value != "" || a.Default != ""):
			return fmt.Errorf("it gives a value to the flag %s of %s, which takes none", a.Name, runtime)
		}
	}
	return nil
}

// switches reports whether an argument of the runtime takes no value.
func (p *Package) switches(a *Argument) bool {
	takes, ok := flags[map[string]string{NPM: "npx", PyPI: "uvx", OCI: "docker"}[p.RegistryType]][a.Name]
	return ok && !takes
}

// key is the name by which an argument's value is given.
func (a *Argument) key() string {
	if a.Type == "named" {
		return strings.TrimLeft(a.Name, "-")
	}
	return a.ValueHint
}

// inputs are the values that a package takes from who adds it.
func (p *Package) inputs() (all []UserInput) {
	for i := range p.EnvironmentVariables {
		all = append(all, settable(p.EnvironmentVariables[i], "env")...)
	}
	for l, list := range [][]Argument{p.RuntimeArguments, p.PackageArguments} {
		for i := range list {
			in := list[i].Input
			in.Name = list[i].key()
			if l == 0 && p.switches(&list[i]) {
				continue
			}
			all = append(all, settable(in, "argument")...)
		}
	}
	return all
}

func (r *Remote) inputs() (all []UserInput) {
	for i := range r.Headers {
		all = append(all, settable(r.Headers[i], "header")...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Variables)) {
		in := r.Variables[name]
		if in.Name = name; in.Value != "" {
			continue
		}
		all = append(all, settable(in, "variable")...)
	}
	return all
}

// settable is an input, or the variables of one whose value is fixed.
func settable(in Input, where string) (all []UserInput) {
	if in.Value == "" {
		return []UserInput{{in, where}}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Variables)) {
		v := in.Variables[name]
		v.Name, v.Variables = name, nil // variables have none
		if v.Value == "" && strings.Contains(in.Value, "{"+name+"}") {
			all = append(all, UserInput{v, where})
		}
	}
	return all
}

// forbidden are variables of the environment that choose what a runtime runs, or where from.
var forbidden = regexp.MustCompile(`(?i)^(PATH|HOME|ENV|BASH_ENV|LD_.*|DYLD_.*|NODE_OPTIONS|NODE_PATH|NPM_CONFIG_.*|UV_.*|PIP_.*|PYTHON(PATH|HOME|STARTUP)|DOCKER_.*|CONTAINER_HOST|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS|NODE_TLS_REJECT_UNAUTHORIZED)$`)

// doubtful are variables that change what runtimes do, or may: they are taken if they have no value but one that is given.
var doubtful = regexp.MustCompile(`(?i)^(PYTHON|NODE_|NPM_|UV_|GIT_|XDG_|OPENSSL_|SSL|CONTAINERS_|STORAGE_|REGISTRY_AUTH|BASH|SHELL|GCONV|GLIBC|MALLOC_|LOCPATH|NLSPATH|JAVA_|JDK_|RUBY|PERL|TMP|TEMP|CURL_|LESS|GNUTLS_).*$|^(PS4|IFS|CDPATH|BROWSER|EDITOR|VISUAL|PAGER|MANPAGER|USERPROFILE|APPDATA|LOCALAPPDATA|PATHEXT|COMSPEC)$`)

// gave reports whether the one who adds the server gave the whole value of an input.
func (f *filler) gave(in *Input) bool {
	_, value := f.choice.Values[in.Name]
	_, ref := f.choice.Secrets[in.Name]
	return in.Value == "" && (value || ref)
}

func (p *Package) launch(f *filler, l *Launch) {
	command, _ := p.program() // was usable
	program, what := slices.Clone(command[:len(command)-1]), command[len(command)-1]
	l.Transport = "stdio"
	if p.RegistryType == OCI {
		program[0] = f.runtime(p.RuntimeHint)
		if !strings.Contains(what, "@sha256:") {
			l.Notes = append(l.Notes, "the tag of the image can be moved by its owner; a digest (@sha256:…) could not")
		}
	} else if p.RegistryBaseURL != "" {
		l.Notes = append(l.Notes, fmt.Sprintf("the entry says that the package is at %s; %s fetches it from where the host of Toolkeep is set up to", toolkeep.ClipBytes(p.RegistryBaseURL, 200), program[0]))
	}
	for _, in := range p.EnvironmentVariables {
		v, ok := f.placed(in, "env")
		switch {
		case !ok:
		case !envName.MatchString(in.Name):
			f.fault(in.Name, "this is no name of a variable of the environment")
		case p.RegistryType == OCI && strings.HasPrefix(v, "text:"): // within the container alone; the client never has it
			program = append(program, "-e", in.Name+"="+v[len("text:"):])
		case forbidden.MatchString(in.Name) || doubtful.MatchString(in.Name) && !f.gave(&in):
			mend := ""
			if in.Value == "" && !forbidden.MatchString(in.Name) {
				mend = fmt.Sprintf("; --env %s=VALUE gives it", in.Name)
			}
			f.fault(in.Name, "the entry sets this variable of the environment, which can choose what runs; Toolkeep does not take it from a registry%s", mend)
		default:
			if l.Env == nil {
				l.Env = map[string]string{}
			}
			l.Env[in.Name] = v
			if p.RegistryType == OCI {
				program = append(program, "-e", in.Name)
			}
		}
	}
	f.open = true
	for i := range p.RuntimeArguments {
		a := &p.RuntimeArguments[i]
		if p.switches(a) {
			if !slices.Contains(own, a.Name) {
				program = append(program, a.Name)
			}
			continue
		}
		out := f.argument(a)
		if slices.Contains(out, a.Name) && len(out)%2 == 1 || slices.Contains(out, "") {
			f.fault(a.key(), "the flag %s needs a value; without one it would take what comes behind it", a.Name)
		}
		program = append(program, out...)
	}
	l.Command = append(program, what)
	for i := range p.PackageArguments {
		a := &p.PackageArguments[i]
		out := f.argument(a)
		if len(out) == 0 && a.Type == "named" && len(f.faults) == 0 && len(f.choice.Values[a.key()]) == 0 {
			l.Notes = append(l.Notes, fmt.Sprintf("the argument %s is left out; --env %s=VALUE gives it, --env %s= writes it without a value", a.Name, a.key(), a.key()))
		}
		l.Command = append(l.Command, out...)
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (r *Remote) transport() (string, error) {
	switch r.Type {
	case "streamable-http":
		return "http", nil
	case "sse":
		return "sse", nil
	}
	return "", fmt.Errorf("servers are reached by streamable-http and sse, not by %s", toolkeep.ClipBytes(r.Type, 40))
}

func (r *Remote) launch(f *filler, l *Launch) {
	l.Transport, _ = r.transport()
	f.open = true
	l.URL = variable.ReplaceAllStringFunc(r.URL, func(m string) string {
		in, ok := r.Variables[m[1:len(m)-1]]
		if in.Name = m[1 : len(m)-1]; !ok {
			in.Required = true // an address with braces is none
		}
		v, given := f.plain(in, in.Name)
		if !given {
			return ""
		}
		return v
	})
	f.open = false
	u, err := url.Parse(l.URL)
	switch {
	case len(f.faults) > 0:
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "":
		f.fault("url", "the address becomes %q, which is no http or https URL", l.URL)
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > 126 }):
		f.fault("url", "the host %q has letters that can look like others; import the address by hand, with its xn-- form", u.Host)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		l.Notes = append(l.Notes, "the address is not https: others on the way read and change what is sent, secrets included")
	}
	for _, in := range r.Headers {
		if v, ok := f.placed(in, "header"); ok {
			if l.Headers == nil {
				l.Headers = map[string]string{}
			}
			l.Headers[in.Name] = v
		}
	}
}

// filler fills inputs, and collects all faults.
type filler struct {
	choice Choice
	inputs []UserInput
	used   map[string]bool // names that were given and are inputs
	open   bool            // what is filled is a command line or an address, which others can read
	faults []toolkeep.Fault
}

func (f *filler) fault(name, format string, args ...any) {
	f.faults = append(f.faults, toolkeep.Fault{Pointer: name, Message: fmt.Sprintf(format, args...)})
}

// done tells all faults at once, those of names that are no inputs too.
func (f *filler) done(server string) error {
	var names []string
	for _, in := range f.inputs {
		names = append(names, in.Name)
	}
	has := "it has none"
	if len(names) > 0 {
		has = "it has " + strings.Join(names, ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(f.choice.Values)) {
		if !f.used[name] {
			f.fault(name, "this is no input that is used here; %s", has)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.choice.Secrets)) {
		if !f.used[name] {
			f.fault(name, "this is no input that is used here; %s", has)
		}
	}
	if f.choice.Runtime != "" && !f.used["runtime of oci"] {
		f.fault("--runtime", "this is for images (oci); npm packages are run by npx, those of PyPI by uvx")
	}
	if len(f.faults) == 0 {
		return nil
	}
	return toolkeep.FaultsError(toolkeep.InvalidParameters, fmt.Sprintf("%s cannot be added with these inputs", server), f.faults)
}

// maxLaunch is how much a person can look over, in bytes.
const maxLaunch = 8192

// readable refuses what a person could not look over before saying yes.
func (f *filler) readable(l *Launch) {
	size := 0
	for _, s := range slices.Concat(l.Command, []string{l.URL}, pairs(l.Env), pairs(l.Headers)) {
		if size += len(s) + 1; strings.Contains(s, "        ") {
			f.fault("command", "a value of it has eight blanks or more, behind which others hide")
		}
	}
	if size > maxLaunch {
		f.fault("command", "with its environment, address and headers it has %d bytes; a person can look over %d", size, maxLaunch)
	}
}

func pairs(m map[string]string) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return out
}

func (f *filler) runtime(hint string) string {
	f.used["runtime of oci"] = true
	switch chosen := f.choice.Runtime; {
	case chosen == "" && hint == "podman":
		return hint
	case chosen == "podman" || chosen == "docker" || chosen == "":
		if chosen == "" {
			chosen = "docker"
		}
		return chosen
	}
	f.fault("--runtime", "an image is run by docker or podman")
	return ""
}

// variable is a place within a fixed value.
var variable = regexp.MustCompile(`\{[A-Za-z0-9_.-]+\}`)

// schemes begin references to secrets. What a registry says must never become one: the server behind would get the secret.
var schemes = regexp.MustCompile(`(?i)^(env|file|secret|vault|sealed|kept)://`)

// behindWord is a reference behind one word.
var behindWord = regexp.MustCompile(`(?i)^[a-z][a-z0-9_-]* +(env|file|secret|vault|sealed|kept)://`)

// reference returns the secret that was given for an input.
func (f *filler) reference(in *Input, name string) (ref string, ok bool) {
	ref, ok = f.choice.Secrets[name]
	if !ok {
		return "", false
	}
	f.used[name] = true
	if _, twice := f.choice.Values[name]; twice {
		f.fault(name, "this has both a value and a secret; give one of them")
	}
	return ref, true
}

// placed returns the value of a variable of the environment or a header: a literal, or a reference alone or behind one word.
func (f *filler) placed(in Input, where string) (string, bool) {
	if in.Value == "" {
		if ref, ok := f.reference(&in, in.Name); ok {
			return ref, true
		}
		v, ok := f.plain(in, in.Name)
		return "text:" + v, ok
	}
	for _, name := range slices.Sorted(maps.Keys(in.Variables)) {
		v, place := in.Variables[name], "{"+name+"}"
		if !strings.Contains(in.Value, place) || v.Value != "" {
			continue
		}
		if ref, ok := f.reference(&v, name); ok {
			before, after, _ := strings.Cut(in.Value, place)
			if after != "" || before != "" && (!secretPrefix.MatchString(before) || strings.Contains(ref, " ")) {
				f.fault(name, "Toolkeep puts a secret alone or behind one word into the %s %s, and the entry says %q", where, in.Name, in.Value)
			}
			return before + ref, true
		}
	}
	v, ok := f.filled(in)
	return "text:" + v, ok
}

var secretPrefix = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]* $`)

// filled returns a fixed value with its variables, ok false if one is missing.
func (f *filler) filled(in Input) (text string, ok bool) {
	ok = true
	text = variable.ReplaceAllStringFunc(in.Value, func(m string) string {
		v, known := in.Variables[m[1:len(m)-1]]
		if !known {
			return m // braces of its own
		}
		v.Name = m[1 : len(m)-1]
		value, given := f.plain(v, v.Name)
		ok = ok && given
		return value
	})
	return text, ok
}

// plain returns the value of an input that is no secret: what was given, or the default.
func (f *filler) plain(in Input, name string) (string, bool) {
	if in.Value != "" {
		return in.Value, true
	}
	values := f.all(in, name, false)
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// all returns the values of an input, none where it is left out or faulty.
func (f *filler) all(in Input, name string, repeated bool) []string {
	values, given := f.choice.Values[name]
	if _, asked := f.choice.Secrets[name]; asked || f.open && in.Secret && (given || in.Required) {
		f.used[name] = true
		f.fault(name, "this becomes part of a command line or an address, which others can read; Toolkeep puts secrets into the environment and into headers alone")
		return nil
	}
	missing := ""
	if in.Description != "" {
		missing = ": " + toolkeep.ClipBytes(in.Description, 300)
	}
	switch {
	case given && in.Secret:
		f.used[name] = true
		f.fault(name, "this is a secret; give a reference, --secret %s=env://NAME or secret://NAME", name)
		return nil
	case given:
		f.used[name] = true
	case in.Default != "" && !in.Secret:
		values = []string{in.Default}
	case in.Required && in.Secret:
		f.fault(name, "this secret is missing (--secret %s=env://NAME or secret://NAME)%s", name, missing)
		return nil
	case in.Required:
		f.fault(name, "this value is missing (--env %s=VALUE)%s", name, missing)
		return nil
	default:
		return nil
	}
	if len(values) > 1 && !repeated {
		f.fault(name, "this takes one value")
		return nil
	}
	for _, v := range values {
		switch {
		case schemes.MatchString(v) || given && behindWord.MatchString(v):
			f.fault(name, "this value is a reference to a secret; give it with --secret %s=REFERENCE if that is meant", name)
		case len(in.Choices) > 0 && !slices.Contains(in.Choices, v):
			f.fault(name, "this is one of %s", strings.Join(in.Choices, ", "))
		case in.Format == "number" && !isNumber(v):
			f.fault(name, "this is a number")
		case in.Format == "boolean" && v != "true" && v != "false" && v != "":
			f.fault(name, "this is true or false")
		case in.Format == "filepath" && given && !filepath.IsAbs(v):
			f.fault(name, "this is an absolute path: the program runs in a folder of its own")
		case tidy(v) != v || len(v) > maxText:
			f.fault(name, "this has characters that do not print, or more than %d bytes", maxText)
		}
	}
	return values
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// argument returns an argument as it stands in the command: --name=value, or -n and value.
func (f *filler) argument(a *Argument) (out []string) {
	in, name := a.Input, a.key()
	var values []string
	if in.Value != "" {
		v, ok := f.filled(in)
		if !ok {
			return nil
		}
		values = []string{v}
	} else {
		values = f.all(in, name, a.Repeated)
	}
	for _, v := range values {
		switch {
		case a.Type != "named":
			out = append(out, v)
		case v == "" || in.Format == "boolean" && v == "true":
			out = append(out, a.Name)
		case in.Format == "boolean" && v == "false":
		case strings.HasPrefix(a.Name, "--"):
			out = append(out, a.Name+"="+v)
		default:
			out = append(out, a.Name, v)
		}
	}
	return out
}
