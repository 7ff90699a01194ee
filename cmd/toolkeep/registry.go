package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcpregistry"
)

// registryFlags are those of all subcommands of registry.
type registryFlags struct {
	address string
	serve   serveFlags
}

// registryNote is where a server came from, as its definition remembers it.
type registryNote struct {
	URL     string `json:"url"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Digest  string `json:"digest"`
}

func (a *app) registryCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "registry search|show|add",
		Short: "Find MCP servers in a registry and put them behind Toolkeep",
		Long: `Find MCP servers in the official MCP registry, or in another one that speaks its API (v0.1), and put them
behind Toolkeep. The registry is that of --registry, else of the setting mcp.registry (` + mcpregistry.Default + `).

Everyone can publish in a registry. Toolkeep shows what it would start and asks first, starts packages by npx,
uvx, docker or podman alone and in the exact version of the entry, takes secrets as references, and remembers
the entry's digest, so that a later look tells where it differs.`,
		Example: "  toolkeep registry search weather\n  toolkeep registry show io.github.example/weather\n  toolkeep registry add io.github.example/weather@1.0.2 --secret API_KEY=env://TOOLKEEP_SECRET_WEATHER",
	})
	c.AddCommand(a.registrySearchCmd(), a.registryShowCmd(), a.registryAddCmd())
	return c
}

func (f *registryFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.address, "registry", "", "`URL` of the registry, in place of the setting mcp.registry")
	c.Flags().StringVar(&f.serve.file, "config", os.Getenv("TOOLKEEP_CONFIG"), "YAML file of settings (TOOLKEEP_CONFIG)")
}

// open returns the registry's client and its address.
func (f *registryFlags) open(a *app, cmd *cobra.Command) (*mcpregistry.Client, string, error) {
	address := f.address
	if address == "" {
		c, err := a.load(cmd, &f.serve)
		if err != nil {
			return nil, "", err
		}
		address = c.MCP.Registry
	}
	client, err := mcpregistry.New(address)
	if err != nil {
		return nil, "", &failure{code: exitUsage, err: err}
	}
	return client, mcpregistry.Tidied(address), nil
}

// registryFailure gives an error of a registry its exit code: refused questions and unknown names are the user's.
func registryFailure(err error) error {
	if toolkeep.IsCode(err, toolkeep.ImportFailed) {
		return &failure{code: exitUnavailable, err: err}
	}
	return &failure{code: exitUsage, err: err}
}

func (a *app) registrySearchCmd() *cobra.Command {
	var f registryFlags
	var limit int
	var cursor string
	c := &cobra.Command{
		Use:     "search [TEXT]",
		Short:   "Find servers whose name holds a text",
		Long:    "Find servers whose name holds a text. The official registry searches names alone, for at least 3 characters;\nwithout TEXT it lists all.",
		Example: "  toolkeep registry search weather\n  toolkeep registry search github --limit 100 --json",
		Args:    arguments(0, 1, "one text to find in names"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := between("--limit", limit, 1, mcpregistry.MaxPage); err != nil {
				return err
			}
			registry, _, err := f.open(a, cmd)
			if err != nil {
				return err
			}
			page, err := registry.Search(cmd.Context(), strings.Join(args, ""), cursor, limit)
			if err != nil {
				return registryFailure(err)
			}
			return a.showPage(page)
		},
	}
	f.add(c)
	c.Flags().IntVar(&limit, "limit", 30, "servers to show, at most 100")
	c.Flags().StringVar(&cursor, "cursor", "", "go on behind an earlier page, whose end says the `CURSOR`")
	return a.withJSON(c)
}

func (a *app) showPage(page *mcpregistry.Page) error {
	raw, err := json.Marshal(page)
	if err != nil {
		return err
	}
	return a.show(raw, func(w io.Writer) error {
		err := table(w, "NAME|VERSION|ADDED BY|DESCRIPTION", func(row func(...any)) {
			for _, e := range page.Entries {
				var kinds []string
				for _, way := range e.Server.Ways() {
					if way.Unusable == "" && !slices.Contains(kinds, way.Kind) {
						kinds = append(kinds, way.Kind)
					}
				}
				about := toolkeep.Clip(e.Server.Description, 70)
				if len(e.Findings) > 0 {
					about = "(" + e.Findings[0].Message + ")"
				}
				row(e.Server.Name, e.Server.Version, or(strings.Join(kinds, ", "), "-"), about)
			}
		})
		for _, why := range page.LeftOut {
			fmt.Fprintln(a.stderr, "toolkeep: warning: a server is left out:", printable(why, ""))
		}
		if page.Next != "" {
			fmt.Fprintf(a.stderr, "there are more: --cursor %s\n", quote(page.Next))
		} else if len(page.Entries) == 0 {
			fmt.Fprintln(a.stderr, "the registry has no server with this name; it searches names alone")
		}
		return err
	})
}

// registryRef splits NAME@VERSION.
func registryRef(ref string) (name, version string, err error) {
	name, version, at := strings.Cut(ref, "@")
	if at && (version == "" || version == "latest") {
		return "", "", usagef("write the exact version behind the @ of %q, or leave the @ out for the latest", ref)
	}
	return name, version, nil
}

// addedServer is a server behind Toolkeep that came from a registry.
type addedServer struct {
	As string `json:"server"`
	registryNote
	Changed bool `json:"changed"` // the registry says something else of the same version now
}

// serverNotes lists the servers and where they came from; the note is nil of one that was imported by hand.
func (c *client) serverNotes(ctx context.Context) (map[string]*registryNote, error) {
	var list struct {
		Servers []struct {
			Name string `json:"name"`
			Spec struct {
				Registry *registryNote `json:"registry"`
			} `json:"spec"`
		} `json:"servers"`
	}
	if _, err := c.get(ctx, "/api/v1/servers", &list); err != nil {
		return nil, err
	}
	notes := map[string]*registryNote{}
	for _, s := range list.Servers {
		notes[s.Name] = s.Spec.Registry
	}
	return notes, nil
}

// added finds the servers that came from the entry of a registry.
func added(notes map[string]*registryNote, address string, e *mcpregistry.Entry) (list []addedServer) {
	for _, as := range slices.Sorted(maps.Keys(notes)) {
		if n := notes[as]; n != nil && mcpregistry.Tidied(n.URL) == address && n.Name == e.Server.Name {
			list = append(list, addedServer{as, *n, n.Version == e.Server.Version && n.Digest != e.Digest})
		}
	}
	return list
}

func (a *app) registryShowCmd() *cobra.Command {
	var f registryFlags
	c := &cobra.Command{
		Use:     "show NAME[@VERSION]",
		Short:   "Show what a registry says of a server: packages, addresses, inputs, and what was added from it",
		Example: "  toolkeep registry show io.github.example/weather\n  toolkeep registry show io.github.example/weather@1.0.2 --json",
		Args:    arguments(1, 1, "a server's name in the registry, with or without @VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, version, err := registryRef(args[0])
			if err != nil {
				return err
			}
			registry, address, err := f.open(a, cmd)
			if err != nil {
				return err
			}
			e, err := registry.Version(cmd.Context(), name, version)
			if err != nil {
				return registryFailure(err)
			}
			cl, err := a.connect()
			var notes map[string]*registryNote
			if err == nil {
				notes, err = cl.serverNotes(cmd.Context())
			}
			if err != nil {
				fmt.Fprintln(a.stderr, "toolkeep: what was added is not compared:", err)
			}
			return a.showEntry(e, added(notes, address, e))
		},
	}
	f.add(c)
	return a.withJSON(c)
}

func (a *app) showEntry(e *mcpregistry.Entry, there []addedServer) error {
	ways := e.Server.Ways()
	raw, err := json.Marshal(struct {
		*mcpregistry.Entry
		Ways  []mcpregistry.Way `json:"ways"`
		Added []addedServer     `json:"added,omitempty"`
	}{e, ways, there})
	if err != nil {
		return err
	}
	a.tellEntry(e, there)
	return a.show(raw, func(w io.Writer) error {
		s := &e.Server
		fmt.Fprintf(w, "%s %s (%s)\n", s.Name, s.Version, entryState(e))
		for _, line := range [][2]string{{"", s.Title}, {"", s.Description}, {"site", s.WebsiteURL}, {"source", repositoryOf(s)}, {"digest", e.Digest}} {
			if line[1] != "" {
				fmt.Fprintf(w, "  %-8s%s\n", line[0], line[1])
			}
		}
		fmt.Fprintln(w)
		err := table(w, "BY|WHAT|CAN BE ADDED", func(row func(...any)) {
			for _, way := range ways {
				row(way.Kind, way.What, or(way.Unusable, "yes"))
			}
		})
		for _, way := range ways {
			if err != nil || len(way.Inputs) == 0 || way.Unusable != "" {
				continue
			}
			fmt.Fprintf(w, "\nInputs of %s:\n", way.What)
			err = table(w, "NAME|IN|NEEDED|SECRET|DEFAULT|DESCRIPTION", func(row func(...any)) {
				for _, in := range way.Inputs {
					about := in.Description
					if len(in.Choices) > 0 {
						about += " (" + strings.Join(in.Choices, ", ") + ")"
					}
					row(in.Name, in.Where, yesNo(in.Required), yesNo(in.Secret), in.Default, toolkeep.Clip(about, 100))
				}
			})
		}
		return err
	})
}

func entryState(e *mcpregistry.Entry) string {
	s := e.Status
	if e.Latest {
		s += ", latest"
	}
	if !e.PublishedAt.IsZero() {
		s += ", published " + orNone(e.PublishedAt)
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func repositoryOf(s *mcpregistry.Server) string {
	if s.Repository == nil {
		return ""
	}
	return s.Repository.URL
}

// tellEntry warns of what a person should know of an entry before using it.
func (a *app) tellEntry(e *mcpregistry.Entry, there []addedServer) {
	warn := func(format string, args ...any) {
		fmt.Fprintf(a.stderr, "toolkeep: warning: "+format+"\n", args...)
	}
	if e.Status != "active" {
		warn("the registry says that this version is %s%s", e.Status, strings.TrimSuffix(": "+e.Why, ": "))
	}
	for _, f := range e.Findings {
		warn("%s of the entry: %s (%s, %s): %s", or(f.Pointer, "/"), f.Message, f.Rule, f.Severity, printable(f.Text, ""))
	}
	for _, t := range there {
		switch {
		case t.Changed:
			warn("the entry of version %s is not the one from which the server %s was added: it was %s and is %s", t.Version, t.As, t.Digest, e.Digest)
		case t.Version != e.Server.Version:
			fmt.Fprintf(a.stderr, "toolkeep: the server %s was added from version %s\n", t.As, t.Version)
		default:
			fmt.Fprintf(a.stderr, "toolkeep: the server %s was added from this entry, which is as it was\n", t.As)
		}
	}
}

// registryAdd holds the flags of `registry add`.
type registryAdd struct {
	registryFlags
	choice              mcpregistry.Choice
	spec                serverSpec
	env, secrets, allow []string
	as, digest          string
	shared, yes, dryRun bool
}

func (a *app) registryAddCmd() *cobra.Command {
	o := &registryAdd{}
	c := &cobra.Command{
		Use:   "add NAME[@VERSION]",
		Short: "Put a server of a registry behind Toolkeep and publish its tools",
		Long: `Show how a server of a registry would be started or reached, ask, and import it as ` + "`toolkeep import mcp`" + ` does: it
is started once, its tools are read, scanned, published and pinned. On a terminal type yes; elsewhere repeat with --yes.

Of several packages and addresses the first that can be used is taken; --package chooses. Inputs are given by their names,
which ` + "`toolkeep registry show`" + ` lists; those that are missing are told together. A package is started in the exact version of
the entry. The entry's digest is remembered: where the registry says something else of the same version later, add is refused
unless --digest names the new one.`,
		Example: `  toolkeep registry add io.github.example/weather
  toolkeep registry add io.github.example/weather@1.0.2 --as weather --secret API_KEY=env://TOOLKEEP_SECRET_WEATHER --env UNITS=metric --yes
  toolkeep registry add com.example/tracker --package remote --secret Authorization=secret://tracker --dry-run`,
		Args: arguments(1, 1, "a server's name in the registry, with or without @VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.addServer(cmd, o, args[0]) },
	}
	o.add(c)
	f := c.Flags()
	f.StringVar(&o.as, "as", "", "name of the server and namespace of its tools; the last part of NAME without it")
	f.StringVar(&o.choice.Kind, "package", "", "npm, pypi, oci or remote, where there are several")
	f.StringVar(&o.choice.Runtime, "runtime", "", "what runs an image: docker (default) or podman")
	f.StringArrayVar(&o.env, "env", nil, "`NAME=VALUE` of an input: a variable of the environment, a header, an argument, or a variable within one; repeatable")
	f.StringArrayVar(&o.secrets, "secret", nil, "`NAME=REFERENCE` of an input that is secret: secret://NAME, env://NAME, file:///PATH or vault://PATH#FIELD, also behind one word as in 'Bearer env://NAME'; repeatable")
	f.StringArrayVar(&o.allow, "allow", nil, "internal `HOST[:PORT]` at which the server may be reached; repeatable")
	f.StringVar(&o.digest, "digest", "", "refuse an entry with another digest than this `sha256:…`")
	f.StringVar(&o.spec.Session, "session", "", "shared (one for each tenant), principal or call")
	f.Var((*secondsFlag)(&o.spec.CallTimeoutS), "call-timeout", "how long a call of its tools may take, such as `2m`; 30s without it, at most 1h")
	f.Var((*secondsFlag)(&o.spec.StartTimeoutS), "start-timeout", "how long the server may take to start, such as `5m`; 100s of a package, which is fetched first, and 30s of an address")
	f.BoolVar(&o.shared, "shared", false, "the server serves all tenants")
	f.BoolVar(&o.yes, "yes", false, "do it, without asking")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be started or reached, and start and store nothing")
	return a.withJSON(c)
}

// packageStart is how long a package may take to start, in seconds: the first start fetches it.
const packageStart = 100

func (a *app) addServer(cmd *cobra.Command, o *registryAdd, ref string) error {
	ctx := cmd.Context()
	name, version, err := registryRef(ref)
	if err == nil {
		err = o.inputs()
	}
	if err != nil {
		return err
	}
	registry, address, err := o.open(a, cmd)
	if err != nil {
		return err
	}
	e, err := registry.Version(ctx, name, version)
	if err != nil {
		return registryFailure(err)
	}
	if o.as == "" {
		o.as = serverName(name[strings.IndexByte(name, '/')+1:])
	}
	if o.as == "" {
		return usagef("the name %s has no letter to make a namespace of; give one with --as", name)
	}
	launch, err := e.Server.Launch(o.choice)
	if err != nil {
		return &failure{code: exitUsage, err: err}
	}
	var cl *client
	var notes map[string]*registryNote
	if cl, err = a.connect(); err == nil {
		notes, err = cl.serverNotes(ctx)
	}
	switch {
	case err != nil && !o.dryRun:
		return err
	case err != nil:
		fmt.Fprintln(a.stderr, "toolkeep: what was added is not compared:", err)
	}
	there := added(notes, address, e)
	a.tellEntry(e, there)
	if err := o.acceptable(e, there); err != nil {
		return err
	}
	was, taken := notes[o.as]
	if taken && (was == nil || mcpregistry.Tidied(was.URL) != address || was.Name != name) {
		return &failure{code: exitRefused, err: fmt.Errorf("there is a server %s already, which did not come from %s; give another name with --as", o.as, name)}
	} else if taken {
		fmt.Fprintf(a.stderr, "toolkeep: this replaces the server %s, which is of version %s\n", o.as, was.Version)
	}
	s := &o.spec
	s.Transport, s.Command, s.Env, s.URL, s.Headers = launch.Transport, launch.Command, launch.Env, launch.URL, launch.Headers
	s.Registry = &registryNote{address, name, e.Server.Version, e.Digest}
	if s.Transport == "stdio" && s.StartTimeoutS == 0 {
		s.StartTimeoutS = packageStart
	}
	if s.Transport == "stdio" && len(o.allow) > 0 {
		return usagef("--allow is for addresses; %s is started as a program", launch.What)
	}
	if s.Network, err = hostPorts(o.allow); err != nil {
		return err
	}
	a.tellLaunch(o.as, e, launch)
	if o.dryRun {
		raw, err := json.Marshal(map[string]any{"server": o.as, "digest": e.Digest, "version": e.Server.Version, "launch": launch})
		if err != nil {
			return err
		}
		return a.show(raw, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, "Nothing was started or stored (--dry-run).")
			return err
		})
	}
	to := "start it"
	if s.URL != "" {
		to = "connect to it"
	}
	if err := a.confirm(ctx, o.yes, to); err != nil {
		return err
	}
	if notes, err = cl.serverNotes(ctx); err != nil {
		return err
	}
	if now, there := notes[o.as]; there != taken || there && (now == nil || *now != *was) {
		return &failure{code: exitRefused, err: fmt.Errorf("the server %s changed while this waited for an answer; look at it with `toolkeep servers` and try again", o.as)}
	}
	return a.importServers(ctx, &importMCP{shared: o.shared}, []fileServer{{Name: o.as, Spec: *s}})
}

// secretReference is a reference alone or behind one word.
var secretReference = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_-]* )?(env|file|secret|vault)://[^ ]+$`)

// inputs reads --env and --secret.
func (o *registryAdd) inputs() error {
	o.choice.Values, o.choice.Secrets = map[string][]string{}, map[string]string{}
	for _, s := range o.env {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return usagef("--env %q: write NAME=VALUE", toolkeep.Clip(s, 20))
		}
		o.choice.Values[name] = append(o.choice.Values[name], value)
	}
	for _, s := range o.secrets {
		name, ref, ok := strings.Cut(s, "=")
		if !ok || name == "" || !secretReference.MatchString(ref) {
			return usagef("--secret %s=…: write NAME=env://NAME, or another reference (secret://, file://, vault://), where a header needs it behind one word, as in 'Authorization=Bearer env://NAME'; never give the secret itself on the command line", name)
		}
		o.choice.Secrets[name] = ref
	}
	return nil
}

// acceptable refuses what was deleted, and an entry that is not the one that is expected.
func (o *registryAdd) acceptable(e *mcpregistry.Entry, there []addedServer) error {
	changed := slices.ContainsFunc(there, func(t addedServer) bool { return t.Changed })
	switch {
	case e.Status == "deleted":
		return &failure{code: exitRefused, err: fmt.Errorf("%s@%s was deleted from the registry", e.Server.Name, e.Server.Version)}
	case o.digest != "" && o.digest != e.Digest:
		return &failure{code: exitRefused, err: fmt.Errorf("the entry of %s@%s has the digest %s, not %s; look at it with `toolkeep registry show`", e.Server.Name, e.Server.Version, e.Digest, o.digest)}
	case changed && o.digest == "":
		return &failure{code: exitRefused, err: fmt.Errorf("the registry changed the entry of version %s after it was added; look at it with `toolkeep registry show`, and accept it with --digest %s", e.Server.Version, e.Digest)}
	}
	return nil
}

// tellLaunch shows on standard error what would be started or reached.
func (a *app) tellLaunch(as string, e *mcpregistry.Entry, l *mcpregistry.Launch) {
	w := a.stderr
	fmt.Fprintf(w, "The server %s, from %s %s, is %s.\n", as, e.Server.Name, e.Server.Version, printable(l.What, ""))
	if l.URL != "" {
		fmt.Fprintf(w, "It is reached at (%s):\n  %s\n", l.Transport, printable(l.URL, ""))
	} else {
		words := make([]string, len(l.Command))
		for i, word := range l.Command {
			words[i] = quote(printable(word, ""))
		}
		fmt.Fprintf(w, "The host of Toolkeep starts it with:\n  %s\n", strings.Join(words, " "))
	}
	for _, list := range []struct {
		what   string
		values map[string]string
	}{{"environment", l.Env}, {"header", l.Headers}} {
		for _, name := range slices.Sorted(maps.Keys(list.values)) {
			value, literal := strings.CutPrefix(list.values[name], "text:")
			if !literal {
				value += " (a reference)"
			}
			fmt.Fprintf(w, "  %s %s = %s\n", list.what, printable(name, ""), printable(value, ""))
		}
	}
	for _, note := range l.Notes {
		fmt.Fprintln(w, "Note:", printable(note, ""))
	}
	fmt.Fprintf(w, "The entry's digest is %s.\n", e.Digest)
}
