package mcpregistry

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// document is a server.json with a package or remotes.
func document(members string) string {
	return `{"name":"io.x/y","description":"d","version":"3.0.0",` + members + `}`
}

func npm(more string) string {
	return `"packages":[{"registryType":"npm","identifier":"@x/y","version":"1.2.3","transport":{"type":"stdio"}` + more + `}]`
}

func oci(more string) string {
	return `"packages":[{"registryType":"oci","identifier":"ghcr.io/x/y:1.2.3","transport":{"type":"stdio"}` + more + `}]`
}

func remote(url, more string) string {
	return `"remotes":[{"type":"streamable-http","url":"` + url + `"` + more + `}]`
}

const apiKey = `"environmentVariables":[{"name":"API_KEY","description":"the key","isRequired":true,"isSecret":true},{"name":"MODE","default":"fast","choices":["fast","slow"]}]`

var launches = []struct {
	name, server string
	broken       bool // it does not fit the published schema
	values       map[string][]string
	secrets      map[string]string
	kind         string
	runtime      string
	want         string // command or URL, then sorted environment or headers; or what the error says
}{
	{name: "npm", server: npm(""), want: "npx -y @x/y@1.2.3"},
	{name: "npm with its own flags", server: npm(`,"runtimeHint":"npx","runtimeArguments":[{"type":"named","name":"-y"}]`), want: "npx -y @x/y@1.2.3"},
	{name: "a hint chooses no program", server: npm(`,"runtimeHint":"/bin/sh"`), want: "npx -y @x/y@1.2.3"},
	{name: "pypi", server: `"packages":[{"registryType":"pypi","identifier":"time-mcp","version":"1.0.6rc1","runtimeHint":"python","transport":{"type":"stdio"},"runtimeArguments":[{"type":"named","name":"--python","value":"3.12"}]}]`,
		want: "uvx --python=3.12 time-mcp@1.0.6rc1"},
	{name: "oci", server: oci(`,` + apiKey), secrets: map[string]string{"API_KEY": "env://KEY"}, want: "docker run -i --rm -e API_KEY -e MODE=fast ghcr.io/x/y:1.2.3 API_KEY=env://KEY"},
	{name: "podman by the hint", server: oci(`,"runtimeHint":"podman"`), want: "podman run -i --rm ghcr.io/x/y:1.2.3"},
	{name: "podman by choice", server: oci(""), runtime: "podman", want: "podman run -i --rm ghcr.io/x/y:1.2.3"},
	{name: "another runtime", server: oci(""), runtime: "sh", want: "docker or podman"},
	{name: "runtime of npm", server: npm(""), runtime: "docker", want: "--runtime: this is for images"},
	{name: "oci with the tag aside", server: `"packages":[{"registryType":"oci","registryBaseUrl":"https://docker.io","identifier":"x/y","version":"2.0","transport":{"type":"stdio"}}]`, want: "docker run -i --rm x/y:2.0"},
	{name: "oci by digest", server: `"packages":[{"registryType":"oci","identifier":"x/y@sha256:` + strings.Repeat("ab", 32) + `","transport":{"type":"stdio"}}]`, want: "docker run -i --rm x/y@sha256:" + strings.Repeat("ab", 32)},
	{name: "mounts", server: oci(`,"runtimeArguments":[{"type":"named","name":"-v","value":"{dir}:/data","variables":{"dir":{"isRequired":true,"format":"filepath"}}}],"packageArguments":[{"type":"positional","value":"/data"}]`),
		values: map[string][]string{"dir": {"/srv"}}, want: "docker run -i --rm -v /srv:/data ghcr.io/x/y:1.2.3 /data"},
	{name: "arguments", server: npm(`,"packageArguments":[{"type":"positional","value":"serve"},{"type":"positional","valueHint":"dir","isRequired":true,"isRepeated":true},{"type":"named","name":"--level","default":"info"},{"type":"named","name":"-q","value":"x"},{"type":"named","name":"--tls","format":"boolean","default":"true"},{"type":"named","name":"--off","format":"boolean","default":"false"},{"type":"named","name":"--stdio"}]`),
		values: map[string][]string{"dir": {"/a", "/b c"}, "stdio": {""}}, want: "npx -y @x/y@1.2.3 serve /a /b c --level=info -q x --tls --stdio"},
	{name: "secrets", server: npm(`,` + apiKey), secrets: map[string]string{"API_KEY": "secret://weather"}, values: map[string][]string{"MODE": {"slow"}},
		want: "npx -y @x/y@1.2.3 API_KEY=secret://weather MODE=text:slow"},
	{name: "fixed values", server: npm(`,"environmentVariables":[{"name":"A","value":"x-{who}-{other}","variables":{"who":{"default":"me"}}},{"name":"B"}]`), want: "npx -y @x/y@1.2.3 A=text:x-me-{other}"},
	{name: "a remote", server: remote("https://mcp.x.io/{team}", `,"variables":{"team":{"isRequired":true}},"headers":[{"name":"Authorization","value":"Bearer {token}","variables":{"token":{"isRequired":true,"isSecret":true}}},{"name":"X-Key","isSecret":true}]`),
		values: map[string][]string{"team": {"red"}}, secrets: map[string]string{"token": "vault://kv/x#t"}, want: "https://mcp.x.io/red Authorization=Bearer vault://kv/x#t"},
	{name: "a word before a secret", server: remote("https://mcp.x.io/", `,"headers":[{"name":"Authorization","isSecret":true}]`), secrets: map[string]string{"Authorization": "Bearer env://K"}, want: "https://mcp.x.io/ Authorization=Bearer env://K"},
	{name: "two words before a secret", server: remote("https://mcp.x.io/", `,"headers":[{"name":"Authorization","value":"Bearer {t}","variables":{"t":{"isSecret":true}}}]`), secrets: map[string]string{"t": "Bearer env://K"}, want: "alone or behind one word"},
	{name: "chosen", server: npm("") + "," + remote("https://mcp.x.io/", ""), kind: "remote", want: "https://mcp.x.io/"},
	{name: "the first that can be used", server: `"packages":[{"registryType":"mcpb","identifier":"https://x.io/y.mcpb","transport":{"type":"stdio"}}],` + remote("https://mcp.x.io/", ""), want: "https://mcp.x.io/"},

	{name: "all that is missing", server: npm(`,"environmentVariables":[{"name":"API_KEY","description":"the key","isRequired":true,"isSecret":true},{"name":"HOST","isRequired":true}],"packageArguments":[{"type":"named","name":"--port","isRequired":true,"format":"number"}]`),
		values: map[string][]string{"MDOE": {"x"}}, want: "API_KEY: this secret is missing (--secret API_KEY=env://NAME or secret://NAME): the key; HOST: this value is missing (--env HOST=VALUE); port: this value is missing (--env port=VALUE); MDOE: this is no input that is used here; it has API_KEY, HOST, port"},
	{name: "a secret as a value", server: npm(`,` + apiKey), values: map[string][]string{"API_KEY": {"hunter2"}}, want: "this is a secret; give a reference"},
	{name: "a reference as a value", server: npm(`,` + apiKey), values: map[string][]string{"MODE": {"env://KEY"}}, secrets: map[string]string{"API_KEY": "env://KEY"}, want: "this value is a reference to a secret"},
	{name: "both", server: npm(`,` + apiKey), values: map[string][]string{"API_KEY": {"x"}}, secrets: map[string]string{"API_KEY": "env://KEY"}, want: "both a value and a secret"},
	{name: "not a choice", server: npm(`,"environmentVariables":[{"name":"MODE","choices":["fast","slow"]}]`), values: map[string][]string{"MODE": {"medium"}}, want: "one of fast, slow"},
	{name: "a secret in the command", server: npm(`,"packageArguments":[{"type":"named","name":"--key","isRequired":true,"isSecret":true}]`), secrets: map[string]string{"key": "env://KEY"}, want: "key: this becomes part of a command line"},
	{name: "a needed secret in the command", server: npm(`,"packageArguments":[{"type":"named","name":"--key","isRequired":true,"isSecret":true}]`), want: "key: this becomes part of a command line"},
	{name: "a secret in an address", server: remote("https://mcp.x.io/{key}", `,"variables":{"key":{"isSecret":true,"isRequired":true}}`), secrets: map[string]string{"key": "env://KEY"}, want: "key: this becomes part of a command line"},
	{name: "a secret within a text", server: remote("https://mcp.x.io/", `,"headers":[{"name":"Cookie","value":"a={key}; b","variables":{"key":{"isSecret":true}}}]`), secrets: map[string]string{"key": "env://KEY"}, want: "alone or behind one word"},
	{name: "a relative path", server: npm(`,"packageArguments":[{"type":"positional","valueHint":"dir","format":"filepath"}]`), values: map[string][]string{"dir": {"data"}}, want: "absolute path"},
	{name: "several values", server: npm(`,"packageArguments":[{"type":"positional","valueHint":"dir"}]`), values: map[string][]string{"dir": {"/a", "/b"}}, want: "takes one value"},

	// What a registry must not be able to do.
	{name: "a reference as default", server: npm(`,"environmentVariables":[{"name":"LEAK","default":"env://TOOLKEEP_SECRET_X"}]`), want: "LEAK: this value is a reference"},
	{name: "a reference as fixed value", server: remote("https://mcp.x.io/", `,"headers":[{"name":"X-Leak","value":"secret://prod"},{"name":"X-Two","value":"Bearer file:///etc/passwd"},{"name":"X-Three","value":"text:(hidden)"},{"name":"X-Four","value":"(hidden)"}]`),
		want: "https://mcp.x.io/ X-Four=text:(hidden) X-Leak=text:secret://prod X-Three=text:text:(hidden) X-Two=text:Bearer file:///etc/passwd"},
	{name: "another program", server: npm(`,"runtimeArguments":[{"type":"named","name":"--package","value":"evil"}]`), want: "the flag \"--package\""},
	{name: "another package", server: npm(`,"runtimeArguments":[{"type":"positional","value":"evil"}]`), want: "the argument \"evil\""},
	{name: "a flag that swallows the image", server: oci(`,"runtimeArguments":[{"type":"named","name":"-e"}],"packageArguments":[{"type":"positional","value":"evil/image"}]`), values: map[string][]string{"e": {""}}, want: "e: the flag -e needs a value"},
	{name: "more rights", server: oci(`,"runtimeArguments":[{"type":"named","name":"--privileged"}]`), want: "the flag \"--privileged\""},
	{name: "another Python", server: `"packages":[{"registryType":"pypi","identifier":"y","version":"1.0","transport":{"type":"stdio"},"runtimeArguments":[{"type":"named","name":"-p","value":"/tmp/python"}]}]`, want: "is not a version"},
	{name: "another entry point", server: oci(`,"runtimeArguments":[{"type":"named","name":"--entrypoint","value":"sh"}]`), want: "the flag \"--entrypoint\""},
	{name: "a value for a switch", server: oci(`,"runtimeArguments":[{"type":"named","name":"--init","value":"evil"}]`), want: "which takes none"},
	{name: "the environment of the runtime", server: npm(`,"environmentVariables":[{"name":"NODE_OPTIONS","value":"--require /tmp/x"},{"name":"npm_config_registry","value":"https://evil.example"},{"name":"PATH","value":"/tmp"},{"name":"NODE_CACHE","value":"ok"}]`),
		want: "NODE_OPTIONS: the entry sets this variable of the environment, which can choose what runs; Toolkeep does not take it from a registry; npm_config_registry: the entry sets"},
	{name: "a variable that was given", server: npm(`,"environmentVariables":[{"name":"GIT_TOKEN","isSecret":true},{"name":"NODE_ENV"}]`), secrets: map[string]string{"GIT_TOKEN": "env://G"}, values: map[string][]string{"NODE_ENV": {"test"}},
		want: "npx -y @x/y@1.2.3 GIT_TOKEN=env://G NODE_ENV=text:test"},
	{name: "a hard variable that was given", server: npm(`,"environmentVariables":[{"name":"NODE_OPTIONS"}]`), values: map[string][]string{"NODE_OPTIONS": {"-r x"}}, want: "NODE_OPTIONS: the entry sets"},
	{name: "the environment in a container", server: oci(`,"environmentVariables":[{"name":"DOCKER_HOST","value":"tcp://x"}]`), want: "docker run -i --rm -e DOCKER_HOST=tcp://x ghcr.io/x/y:1.2.3"},
	{name: "a secret for the client", server: oci(`,"environmentVariables":[{"name":"DOCKER_HOST","isSecret":true}]`), secrets: map[string]string{"DOCKER_HOST": "env://G"}, want: "DOCKER_HOST: the entry sets"},
	{name: "no name of a variable", server: oci(`,"environmentVariables":[{"name":"A=B","value":"x"}]`), want: "no name of a variable"},
	{name: "switches", server: oci(`,"runtimeArguments":[{"type":"named","name":"--read-only"},{"type":"named","name":"--init"}]`), want: "docker run -i --rm --read-only --init ghcr.io/x/y:1.2.3"},
	{name: "a mount for reading", server: oci(`,"runtimeArguments":[{"type":"named","name":"--mount","value":"type=bind,src={dir},dst=/data,ro","variables":{"dir":{"isRequired":true}}}]`), values: map[string][]string{"dir": {"/srv"}}, want: "docker run -i --rm --mount=type=bind,src=/srv,dst=/data,ro ghcr.io/x/y:1.2.3"},
	{name: "a secret behind a word as value", server: remote("https://mcp.x.io/", `,"headers":[{"name":"X-Key"}]`), values: map[string][]string{"X-Key": {"Bearer env://K"}}, want: "X-Key: this value is a reference"},
	{name: "a fixed variable", server: npm(`,"environmentVariables":[{"name":"A","value":"x-{who}","variables":{"who":{"value":"me"}}}]`), want: "npx -y @x/y@1.2.3 A=text:x-me"},
	{name: "a host in other letters", server: remote("https://mcp.\u0440aypal.com/", ""), want: "can look like others"},
	{name: "a long command", server: npm(`,"packageArguments":[` + strings.Repeat(`{"type":"positional","value":"`+strings.Repeat("x", 4000)+`"},`, 3) + `{"type":"positional","value":"x"}]`), want: "a person can look over 8192"},
	{name: "blanks", server: npm(`,"packageArguments":[{"type":"positional","value":"x` + strings.Repeat(" ", 8) + `y"}]`), want: "eight blanks"},
	{name: "a range", server: strings.Replace(npm(""), "1.2.3", "^1.2.3", 1), want: "not an exact version"},
	{name: "a tag", server: strings.Replace(npm(""), "1.2.3", "next", 1), want: "not an exact version"},
	{name: "a short version", server: strings.Replace(npm(""), "1.2.3", "1", 1), want: "not an exact version"},
	{name: "latest", server: strings.Replace(npm(""), "1.2.3", "latest", 1), broken: true, want: "not an exact version"},
	{name: "no version", server: strings.Replace(npm(""), `,"version":"1.2.3"`, "", 1), want: "not an exact version"},
	{name: "a repository as package", server: strings.Replace(npm(""), "@x/y", "github:x/y", 1), want: "not the name of an npm package"},
	{name: "a flag as package", server: strings.Replace(npm(""), "@x/y", "--package", 1), want: "not the name of an npm package"},
	{name: "pypi from elsewhere", server: `"packages":[{"registryType":"pypi","identifier":"git+https://x.io/y","version":"1.0","transport":{"type":"stdio"}}]`, want: "not the name of a package of PyPI"},
	{name: "pypi latest", server: `"packages":[{"registryType":"pypi","identifier":"y","version":"latest","transport":{"type":"stdio"}}]`, broken: true, want: "not an exact version"},
	{name: "an image without tag", server: strings.Replace(oci(""), ":1.2.3", "", 1), want: "neither a tag besides latest nor a digest"},
	{name: "the latest image", server: strings.Replace(oci(""), ":1.2.3", ":latest", 1), want: "neither a tag besides latest nor a digest"},
	{name: "a flag as image", server: strings.Replace(oci(""), "ghcr.io/x/y:1.2.3", "--privileged", 1), want: "not the name of an image"},
	{name: "another registry of images", server: oci(`,"registryBaseUrl":"https://evil.example"`), want: "the image is in https://evil.example"},
	{name: "a checksum", server: npm(`,"fileSha256":"` + strings.Repeat("ab", 32) + `"`), want: "checksum"},
	{name: "a package that serves HTTP", server: `"packages":[{"registryType":"npm","identifier":"y","version":"1.0.0","transport":{"type":"sse","url":"http://127.0.0.1:1/"}}]`, want: "serves sse instead of stdio"},
	{name: "bundles", server: `"packages":[{"registryType":"mcpb","identifier":"https://x.io/y.mcpb","fileSha256":"` + strings.Repeat("ab", 32) + `","transport":{"type":"stdio"}},{"registryType":"nuget","identifier":"Y","version":"1.0.0","transport":{"type":"stdio"}}]`,
		want: "not those of mcpb; the nuget package Y, version 1.0.0: packages of npm, pypi and oci can be run, not those of nuget. What it needs may be written by hand"},
	{name: "an address with a password", server: remote("https://u:p@mcp.x.io/", ""), want: "no http or https URL"},
	{name: "an address without a value", server: remote("https://{host}/", ""), want: "host: this value is missing"},
	{name: "another transport", server: `"remotes":[{"type":"websocket","url":"wss://x.io"}]`, broken: true, want: "not by websocket"},
	{name: "nothing", server: `"packages":[]`, want: "neither packages nor remotes"},
	{name: "not of that kind", server: npm(""), kind: "oci", want: "it has npm"},
}

func TestLaunch(t *testing.T) {
	for _, c := range launches {
		e, err := entryOf(document(c.server))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		l, err := e.Server.Launch(Choice{Kind: c.kind, Runtime: c.runtime, Values: c.values, Secrets: c.secrets})
		got := ""
		if err != nil {
			got = faultText(err)
			if !strings.Contains(got, c.want) {
				t.Errorf("%s:\n got error %s\nwant %s", c.name, got, c.want)
			}
			continue
		}
		if got = strings.Join(append(append(slices.Clone(l.Command), l.URL), append(pairs(l.Env), pairs(l.Headers)...)...), " "); strings.Join(strings.Fields(got), " ") != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func entryOf(server string) (*Entry, error) {
	var v any
	if err := json.Unmarshal([]byte(`{"server":`+server+`}`), &v); err != nil {
		return nil, err
	}
	return readEntry(v)
}

// faultText is the message of an error with all its faults.
func faultText(err error) string {
	e := toolkeep.AsError(err)
	faults, _ := e.Details["errors"].([]toolkeep.Fault)
	var all []string
	for _, f := range faults {
		all = append(all, f.Pointer+": "+f.Message)
	}
	return e.Message + "\n" + strings.Join(all, "; ")
}

// TestNothingOfTheHost: what an entry itself says behind flags of an image reaches nothing of the host.
func TestNothingOfTheHost(t *testing.T) {
	for _, argument := range []string{
		`"name":"-v","value":"/:/host"`, `"name":"--volume","value":"/var/run/docker.sock:/s"`, `"name":"-v","default":"/:/host"`, `"name":"-v","choices":["/:/host"]`,
		`"name":"-v","value":"{d}:/data","variables":{"d":{"default":"/"}}`, `"name":"-v","value":"{d}:/data","variables":{"d":{"value":"/"}}`, `"name":"-v","value":"{d}:/data","variables":{"d":{"choices":["/"]}}`,
		`"name":"-v","value":"/{d}:/data","variables":{"d":{}}`, `"name":"-v","value":"{d}:/data:shared","variables":{"d":{}}`, `"name":"--mount","value":"type=bind,src=/,dst=/host"`,
		`"name":"--mount","value":"type=volume,src={d},dst=/x,volume-opt=device=/","variables":{"d":{}}`, `"name":"--mount","value":"type=bind,src={d},dst=/x,bind-propagation=shared","variables":{"d":{}}`,
		`"name":"--network","value":"host"`, `"name":"-p","value":"80:80"`, `"name":"-u","value":"root"`, `"name":"--add-host","value":"a:1.2.3.4"`, `"name":"--tmpfs","value":"/x"`,
		`"name":"-e","value":"AWS_SECRET_ACCESS_KEY"`, `"name":"--env","default":"AWS_SECRET_ACCESS_KEY"`, `"name":"-e","value":"{k}","variables":{"k":{"default":"AWS_SECRET_ACCESS_KEY"}}`,
	} {
		e, err := entryOf(document(oci(`,"runtimeArguments":[{"type":"named",` + argument + `}]`)))
		if err != nil {
			t.Fatal(err)
		}
		if l, err := e.Server.Launch(Choice{Values: map[string][]string{"d": {"/srv"}}}); !toolkeep.IsCode(err, toolkeep.ImportFailed) {
			t.Errorf("%s: %v, %v", argument, l, err)
		}
	}
}

// TestVariablesOfRuntimes: no entry sets a variable that can choose what runs.
func TestVariablesOfRuntimes(t *testing.T) {
	for _, name := range strings.Fields("PYTHONWARNINGS BROWSER SHELLOPTS PS4 PYTHONUSERBASE NODE_REDIRECT_WARNINGS NODE_V8_COVERAGE OPENSSL_CONF SSLKEYLOGFILE GIT_SSH_COMMAND GCONV_PATH XDG_CONFIG_HOME CONTAINERS_CONF REGISTRY_AUTH_FILE STORAGE_DRIVER TMPDIR LD_PRELOAD path HTTPS_PROXY") {
		for _, value := range []string{"value", "default"} {
			e, err := entryOf(document(npm(`,"environmentVariables":[{"name":"` + name + `","` + value + `":"x"}]`)))
			if err != nil {
				t.Fatal(err)
			}
			if l, err := e.Server.Launch(Choice{}); err == nil {
				t.Errorf("%s: %v", name, l.Env)
			}
		}
	}
}

// TestInterpreters: uvx takes some names for Python itself.
func TestInterpreters(t *testing.T) {
	for name, is := range map[string]bool{"python": true, "Python3": true, "python3.12": true, "cpython": true, "cpython-3.12-linux-x86_64-gnu": true, "pypy3": true, "graalpy": true, "pyston": true, "pyodide": true, "cp312": true, "pythonw": true, "any": true,
		"python-mcp": false, "pypy-tools": false, "cpu": false, "mcp": false, "anything": false, "pydantic": false} {
		p := Package{RegistryType: PyPI, Identifier: name, Version: "3.12"}
		p.Transport.Type = "stdio"
		if _, err := p.program(); (err != nil) != is {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnreadableEntries: names that become one, and lists that no person reads, are refused; characters that print as nothing go.
func TestUnreadableEntries(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`{"type":"positional","value":"x"},`, maxInputs+1), ",")
	for _, server := range []string{remote("https://x.io/{a}", `,"variables":{"a":{"default":"1"},"a\u200b":{"default":"2"}}`), npm(`,"packageArguments":[` + many + `]`)} {
		if e, err := entryOf(document(server)); err == nil {
			t.Errorf("%.80s: %v", server, e)
		}
	}
	if got := tidy("a\u3164b\u2800c\u034fd\ufe0fe\U000e0101f"); got != "abcdef" {
		t.Errorf("%q", got)
	}
}

// TestNotes: what moves and what is left out is said.
func TestNotes(t *testing.T) {
	for server, says := range map[string]string{
		oci(""): "the tag of the image can be moved",
		npm(`,"packageArguments":[{"type":"named","name":"--port","format":"number"}]`): "--port is left out; --env port=VALUE gives it",
		remote("http://mcp.x.io/", ""):               "not https",
		npm(`,"registryBaseUrl":"https://npm.x.io"`): "the entry says that the package is at https://npm.x.io; npx fetches it from",
	} {
		e, err := entryOf(document(server))
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Server.Launch(Choice{})
		if err != nil || len(l.Notes) != 1 || !strings.Contains(l.Notes[0], says) {
			t.Errorf("%s: %+v, %v", server, l, err)
		}
	}
}

// FuzzEntry: whatever a registry says, a command begins with a runtime of the list and holds nothing that does not print, and no
// literal of the entry becomes a reference to a secret.
func FuzzEntry(f *testing.F) {
	for _, c := range launches {
		f.Add([]byte(document(c.server)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := entryOf(string(raw))
		if err != nil {
			return
		}
		for _, kind := range []string{"", NPM, PyPI, OCI, Address} {
			l, err := e.Server.Launch(Choice{Kind: kind, Values: map[string][]string{}})
			if err != nil {
				continue
			}
			if len(l.Command) > 0 && !slices.Contains([]string{"npx", "uvx", "docker", "podman"}, l.Command[0]) || len(l.Command) == 0 && l.URL == "" {
				t.Errorf("%q is started for %s", l.Command, raw)
			}
			for _, v := range slices.Concat(l.Command, []string{l.URL}, slices.Collect(maps.Values(l.Env)), slices.Collect(maps.Values(l.Headers))) {
				if tidy(v) != v {
					t.Errorf("%q holds what does not print", v)
				}
			}
			for _, v := range slices.Concat(slices.Collect(maps.Values(l.Env)), slices.Collect(maps.Values(l.Headers))) {
				if !strings.HasPrefix(v, "text:") {
					t.Errorf("the value %q is no literal", v)
				}
			}
		}
	})
}

func TestTidied(t *testing.T) {
	for address, want := range map[string]string{"https://R.x.io/": "https://r.x.io", "HTTPS://r.x.io:443/a//": "https://r.x.io/a", "http://[::1]:80": "http://[::1]", "https://r.x.io:80/A": "https://r.x.io:80/A", "": ""} {
		if got := Tidied(address); got != want {
			t.Errorf("%s becomes %s", address, got)
		}
	}
}
