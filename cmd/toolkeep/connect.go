package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/clientconfig"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/suggest"
)

// entryName is the name of Toolkeep among a client's MCP servers.
const entryName = "toolkeep"

// connecting is one run of connect.
type connecting struct {
	a      *app
	client clientconfig.Client
	path   string

	scope                               []string
	subject, file                       string
	bridge, force                       bool
	list, remove, printOnly, withTheKey bool
}

func (a *app) connectCmd() *cobra.Command {
	o := &connecting{a: a}
	c := &cobra.Command{
		Use:   "connect CLIENT",
		Short: "Let an MCP client such as Claude Code or Cursor use the tools, with a key of its own",
		Long: `Make an API key for an MCP client and write it, with the server's address, into the client's
configuration file. Everything else in the file stays as it is; what stood there is kept beside it as
FILE` + clientconfig.BackupSuffix + `. The key has the role agent. Narrow it with --scope to the tools that
the client needs; the client sees no others.

A client that can gets the server's URL: the server must run when the client does. Others, and all with
--bridge, start ` + "`toolkeep mcp`" + `, which starts the server if it does not run.

Repeat the command to change scope or address: the client gets another key, and the old one is revoked.
--remove takes the entry out of the file and revokes the key.`,
		Example: `  toolkeep connect claude-code --scope 'bookshop.*' --scope std.hash
  toolkeep connect --list
  toolkeep connect cursor --file .cursor/mcp.json
  toolkeep connect codex --print
  toolkeep connect claude-code --remove`,
		Args:              arguments(0, 1, "a client; `toolkeep connect --list` shows them"),
		ValidArgsFunction: cobra.FixedCompletions(clientNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.read(args)
			switch {
			case err != nil:
				return err
			case o.list:
				return o.showClients()
			case o.remove:
				return o.takeOut(cmd.Context())
			case o.printOnly:
				return o.print(cmd.Context())
			}
			return o.connect(cmd.Context())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.list, "list", false, "list the clients, their files, and which are connected")
	f.BoolVar(&o.remove, "remove", false, "take the entry out of the file and revoke its key")
	f.BoolVar(&o.printOnly, "print", false, "print the entry and write nothing")
	f.BoolVar(&o.withTheKey, "with-key", false, "with --print: make the key and print it too")
	f.StringArrayVar(&o.scope, "scope", nil, "narrow the key to tools that match this pattern, such as 'shop.*'; repeatable")
	f.StringVar(&o.subject, "subject", "", "subject of the key, which the records of calls name; the client's name without it")
	f.StringVar(&o.file, "file", "", "write this `FILE` of the client, such as that of a project or profile")
	f.BoolVar(&o.bridge, "bridge", false, "let the client start `toolkeep mcp`, also where it could use the server's URL")
	f.BoolVar(&o.force, "force", false, "replace or remove an entry toolkeep that this command did not write")
	return a.withJSON(c)
}

func clientNames() (names []string) {
	for _, c := range clientconfig.Clients() {
		names = append(names, c.Name)
	}
	return names
}

// read checks the command line and finds the client and its file.
func (o *connecting) read(args []string) error {
	var ways []string
	for flag, set := range map[string]bool{"--list": o.list, "--remove": o.remove, "--print": o.printOnly} {
		if set {
			ways = append(ways, flag)
		}
	}
	slices.Sort(ways)
	switch {
	case len(ways) > 1:
		return usagef("%s do different things; give one of them", strings.Join(ways, " and "))
	case o.withTheKey && !o.printOnly:
		return usagef("--with-key goes with --print; without it the key is written to the client's file alone")
	case o.list && len(args) > 0:
		return usagef("unexpected argument %q: --list shows all clients", args[0])
	case o.list:
		return nil
	case len(args) == 0:
		return usagef("name a client: %s; `toolkeep connect --list` shows their files", strings.Join(clientNames(), ", "))
	}
	i := slices.Index(clientNames(), args[0])
	if i < 0 {
		meant := ""
		if near := suggest.Suggest(args[0], clientNames()); near != "" {
			meant = "; did you mean " + near + "?"
		}
		return usagef("%q is not a client that connect knows%s They are %s. docs/mcp.md shows what others need", args[0], or(meant, "."), strings.Join(clientNames(), ", "))
	}
	o.client = clientconfig.Clients()[i]
	place, err := clientconfig.Here()
	if err != nil && o.file == "" {
		return usagef("%v: set HOME, or name the client's file with --file", err)
	}
	o.path, o.subject = o.file, or(o.subject, o.client.Name)
	if o.file == "" {
		o.path = o.client.Path(place)
	}
	if o.path, err = filepath.Abs(o.path); err != nil {
		return usagef("--file: %v", err)
	}
	return nil
}

// connect writes the client's file. The key is made when all else is known to work; the earlier one ends when the file
// has the new one.
func (o *connecting) connect(ctx context.Context) error {
	file, found, there, err := o.open()
	if err != nil {
		return err
	}
	cl, err := o.a.connect()
	if err != nil {
		return err
	}
	server, why, err := o.server(cl)
	if err != nil {
		return err
	}
	if _, _, err = o.change(file, server, "YOUR_KEY"); err != nil {
		return err
	}
	var old *keyLine
	if there {
		if old, err = o.ownKey(ctx, cl, found); err != nil {
			return err
		}
		if old == nil && !o.force {
			return o.foreign("replaces")
		}
		if o.unchanged(server, found, old) {
			return o.say(connected{KeyID: old.ID, Scope: old.Scope, Subject: old.Subject, URL: server.URL, Command: server.Command, Unchanged: true})
		}
	}
	if _, err := os.Stat(filepath.Dir(o.path)); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintf(o.a.stderr, "toolkeep: %s is not there and is made; is %s installed?\n", filepath.Dir(o.path), o.client.Title)
	}
	key, text, err := o.makeKey(ctx, cl)
	if err != nil {
		return err
	}
	content, _, err := o.change(file, server, text)
	done := connected{KeyID: key, Scope: o.scope, Subject: o.subject, URL: server.URL, Command: server.Command, Why: why}
	if err == nil {
		done.Backup, err = clientconfig.Write(o.path, file, content)
		err = o.fault(exitUnavailable, err)
	}
	if err != nil {
		o.giveUp(ctx, cl, key)
		return err
	}
	if old != nil && old.RevokedAt == nil {
		if err := o.revoke(ctx, cl, old.ID); err != nil {
			return errors.Join(o.say(done), &failure{code: exitToolFailed, err: fmt.Errorf("the client's earlier key %s could not be revoked (%w); repeat: toolkeep keys revoke %s", old.ID, err, old.ID)})
		}
		done.Revoked = old.ID
	}
	o.a.tellUnmatched(ctx, cl, o.scope)
	return o.say(done)
}

// open reads the client's file and its entry.
func (o *connecting) open() (file []byte, found any, there bool, err error) {
	if file, err = clientconfig.Read(o.path); err == nil {
		found, there, err = o.client.Find(file, entryName)
	}
	return file, found, there, o.fault(exitUsage, err)
}

// fault names the file of an error.
func (o *connecting) fault(code int, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, clientconfig.ErrChanged):
		code = exitRefused
	}
	return &failure{code: code, err: fmt.Errorf("%s of %s: %w", o.path, o.client.Title, err)}
}

// server says how the client reaches the server; why tells of a program where the client could use a URL.
func (o *connecting) server(cl *client) (s clientconfig.Server, why string, err error) {
	remote := os.Getenv("TOOLKEEP_URL") != ""
	var shown []string
	for _, f := range []struct{ flag, path string }{{"--ca-file", or(o.a.tls.ca, os.Getenv(envCA))}, {"--client-cert", or(o.a.tls.cert, os.Getenv(envClientCert))}, {"--client-key", or(o.a.tls.key, os.Getenv(envClientKey))}} {
		if f.path == "" || !strings.HasPrefix(cl.base, "https:") {
			continue
		}
		if f.path, err = filepath.Abs(f.path); err != nil {
			return s, "", usagef("%s: %v", f.flag, err)
		}
		shown = append(shown, f.flag, f.path)
	}
	info, _ := datadir.ReadServerFile(o.a.data)
	_, port, _ := net.SplitHostPort(info.Addr)
	switch {
	case !o.client.HTTP || o.bridge:
	case len(shown) > 0:
		why = "the server's TLS needs " + shown[0] + ", which a client's file has no place for"
	case !remote && port == "0":
		why = "the server takes another port at each start (http.addr " + info.Addr + ")"
	default:
		s.URL = cl.base + "/mcp"
		return s, "", nil
	}
	if s.Command, err = ownProgram(); err != nil {
		return s, "", err
	}
	if remote {
		s.Env = clientconfig.Entry{{Name: "TOOLKEEP_URL", Value: cl.base}}
	} else {
		data, err := filepath.Abs(o.a.data)
		if err != nil {
			return s, "", usagef("the data directory %q has no place: %v", o.a.data, err)
		}
		s.Args = []string{"--data", data}
	}
	s.Args = append(append(s.Args, "mcp"), shown...)
	return s, why, nil
}

// ownProgram is the absolute path of this program, if it will be there tomorrow.
func ownProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", &failure{code: exitUnavailable, err: err}
	}
	shown := self
	if named, err := exec.LookPath("toolkeep"); err == nil && filepath.IsAbs(named) { // a link stays where its target is replaced
		here, hereErr := os.Stat(self)
		if there, err := os.Stat(named); err == nil && hereErr == nil && os.SameFile(here, there) {
			shown = named
		}
	}
	target, err := filepath.EvalSymlinks(os.TempDir())
	for _, temporary := range []string{os.TempDir(), target} {
		for _, program := range []string{self, shown} {
			below, relErr := filepath.Rel(temporary, program)
			if err == nil && relErr == nil && filepath.IsLocal(below) {
				return "", usagef("the client would have to start %s, which is in a temporary folder; put toolkeep where it stays, such as /usr/local/bin, and run it from there", program)
			}
		}
	}
	return shown, nil
}

// change returns the file with an entry for the server with this key, and the entry.
func (o *connecting) change(file []byte, s clientconfig.Server, key string) ([]byte, clientconfig.Entry, error) {
	if s.Key = key; s.URL == "" {
		s.Env = append(slices.Clone(s.Env), clientconfig.Member{Name: "TOOLKEEP_KEY", Value: key})
	}
	e, err := o.client.Entry(s)
	if err == nil {
		file, err = o.client.Set(file, entryName, e)
	}
	return file, e, o.fault(exitUsage, err)
}

// keyText matches an API key and its id.
var keyText = regexp.MustCompile(`tk_([a-z2-7]{12})_[0-9A-Za-z]{47}`)

// keyIn returns the one key in an entry and its id, "" for any other number.
func keyIn(entry any) (text, id string) {
	raw, err := json.Marshal(entry)
	if all := keyText.FindAllSubmatch(raw, 2); err == nil && len(all) == 1 {
		return string(all[0][0]), string(all[0][1])
	}
	return "", ""
}

// keyName is the name of keys that connect makes for the client.
func (o *connecting) keyName() string { return "connect " + o.client.Name }

// ownKey returns the key in an entry if connect made it for this client, else nil. An id can be written by anyone: of a key
// that works the server is asked with its text.
func (o *connecting) ownKey(ctx context.Context, cl *client, entry any) (*keyLine, error) {
	text, id := keyIn(entry)
	if id == "" {
		return nil, nil
	}
	key, err := cl.keyOf(ctx, id)
	if err != nil || key == nil || key.Name != o.keyName() {
		return nil, err
	}
	if key.RevokedAt != nil || key.ExpiresAt != nil && key.ExpiresAt.Before(time.Now()) {
		return key, nil
	}
	as := *cl
	as.key = text
	var refused *refusedError
	if _, err = as.get(ctx, "/api/v1/tools?page_size=1", nil); errors.As(err, &refused) && refused.Code == string(toolkeep.Unauthenticated) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return key, nil
}

// unchanged reports whether the client has what it would get, with a key that still works.
func (o *connecting) unchanged(s clientconfig.Server, found any, k *keyLine) bool {
	if k == nil || k.RevokedAt != nil || k.ExpiresAt != nil || k.Subject != o.subject || !slices.Equal(k.Roles, []string{"agent"}) || !slices.Equal(k.Scope, o.scope) {
		return false
	}
	text, _ := keyIn(found)
	_, e, err := o.change(nil, s, text)
	return err == nil && clientconfig.Equal(found, e)
}

func (o *connecting) foreign(does string) error {
	return &failure{code: exitRefused, err: fmt.Errorf("%s has an entry %s that `toolkeep connect %s` did not write for this server; --force %s it", o.path, entryName, o.client.Name, does)}
}

func (o *connecting) makeKey(ctx context.Context, cl *client) (id, text string, err error) {
	body := map[string]any{"subject": o.subject, "name": o.keyName(), "roles": []string{"agent"}}
	if len(o.scope) > 0 {
		body["scope"] = o.scope
	}
	var made struct{ ID, Secret string }
	_, err = cl.post(ctx, "/api/v1/keys", body, &made)
	return made.ID, made.Secret, err
}

// revoke goes on where the command was interrupted: a key that is in no file must end.
func (o *connecting) revoke(ctx context.Context, cl *client, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_, err := cl.do(ctx, http.MethodDelete, "/api/v1/keys/"+url.PathEscape(id), nil)
	return err
}

// giveUp ends a key that came into no file.
func (o *connecting) giveUp(ctx context.Context, cl *client, id string) {
	if err := o.revoke(ctx, cl, id); err != nil {
		fmt.Fprintf(o.a.stderr, "toolkeep: the key %s was made for it and is in no file; revoke it: toolkeep keys revoke %s\n", id, id)
	}
}

// connected is what connect says that it did.
type connected struct {
	Client    string   `json:"client"`
	File      string   `json:"file"`
	Backup    string   `json:"backup,omitempty"`
	URL       string   `json:"url,omitempty"`
	Command   string   `json:"command,omitempty"`
	Why       string   `json:"why_command,omitempty"`
	KeyID     string   `json:"key_id,omitempty"`
	Subject   string   `json:"subject,omitempty"`
	Scope     []string `json:"scope,omitempty"`
	Revoked   string   `json:"revoked_key_id,omitempty"`
	Unchanged bool     `json:"unchanged,omitempty"`
	Removed   bool     `json:"removed,omitempty"`
}

func (o *connecting) say(d connected) error {
	d.Client, d.File = o.client.Name, o.path
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if info, err := os.Stat(o.path); err == nil && info.Mode().Perm()&0o077 != 0 && d.KeyID != "" {
		fmt.Fprintf(o.a.stderr, "toolkeep: others on this machine may read the key in %s; `chmod 600 %s` ends that\n", o.path, quote(o.path))
	}
	return o.a.show(raw, func(w io.Writer) error {
		title, scope := o.client.Title, "every tool that the role agent may call"
		if len(d.Scope) > 0 {
			scope = strings.Join(d.Scope, ", ")
		}
		switch {
		case d.Removed:
			fmt.Fprintf(w, "%s is not connected any more.\n", title)
		case d.Unchanged:
			fmt.Fprintf(w, "%s is connected already; nothing was changed.\n", title)
		default:
			fmt.Fprintf(w, "%s is connected.\n", title)
		}
		for _, line := range [][2]string{{"file", d.File}, {"backup", d.Backup}, {"server", d.URL}, {"program", d.Command}, {"because", d.Why}} {
			if line[1] != "" {
				fmt.Fprintf(w, "  %-8s %s\n", line[0], line[1])
			}
		}
		if d.KeyID != "" {
			fmt.Fprintf(w, "  %-8s %s of %s, for %s\n", "key", d.KeyID, d.Subject, scope)
		}
		if d.Revoked != "" {
			fmt.Fprintf(w, "  %-8s %s\n", "revoked", d.Revoked)
		}
		if d.Unchanged {
			return nil
		}
		_, err := fmt.Fprintf(w, "Now %s.\n", o.client.Apply)
		return err
	})
}

// print shows the entry within its table, as it would stand in a file of its own.
func (o *connecting) print(ctx context.Context) (err error) {
	cl, err := o.a.connect()
	if err != nil {
		return err
	}
	server, _, err := o.server(cl)
	if err != nil {
		return err
	}
	id := ""
	content, _, err := o.change(nil, server, "YOUR_KEY")
	if err == nil && o.withTheKey {
		var text string
		if id, text, err = o.makeKey(ctx, cl); err != nil {
			return err
		}
		defer func() {
			if err != nil { // it was not printed
				o.giveUp(ctx, cl, id)
			}
		}()
		content, _, err = o.change(nil, server, text)
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]string{"client": o.client.Name, "file": o.path, "key_id": id, "content": string(content)})
	if err != nil {
		return err
	}
	if id != "" {
		o.a.tellUnmatched(ctx, cl, o.scope)
	}
	fmt.Fprintf(o.a.stderr, "This belongs into %s", o.path)
	if id == "" {
		fmt.Fprintf(o.a.stderr, ", with a key in place of YOUR_KEY (toolkeep keys create %s --role agent)", quote(o.subject))
	}
	fmt.Fprintf(o.a.stderr, ". The documentation is %s\n", o.client.Docs)
	return o.a.show(raw, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// takeOut removes the entry, then revokes its key.
func (o *connecting) takeOut(ctx context.Context) error {
	file, found, there, err := o.open()
	if err != nil {
		return err
	}
	if !there {
		fmt.Fprintf(o.a.stderr, "toolkeep: %s has no entry %s\n", o.path, entryName)
		return nil
	}
	var key *keyLine
	cl, err := o.a.connect()
	if err == nil {
		key, err = o.ownKey(ctx, cl, found)
	}
	switch {
	case o.force && err != nil:
		fmt.Fprintf(o.a.stderr, "toolkeep: the key in the entry stays valid: %v\n", err)
		if _, id := keyIn(found); id != "" {
			fmt.Fprintf(o.a.stderr, "toolkeep: revoke it when the server runs: toolkeep keys revoke %s\n", id)
		}
	case err != nil:
		return err
	case key == nil && !o.force:
		return o.foreign("removes")
	}
	content, _, err := o.client.Unset(file, entryName)
	if err != nil {
		return o.fault(exitUsage, err)
	}
	done := connected{Removed: true}
	if done.Backup, err = clientconfig.Write(o.path, file, content); err != nil {
		return o.fault(exitUnavailable, err)
	}
	if key != nil && key.RevokedAt == nil {
		if err := o.revoke(ctx, cl, key.ID); err != nil {
			return errors.Join(o.say(done), &failure{code: exitToolFailed, err: fmt.Errorf("the client's key %s could not be revoked (%w); repeat: toolkeep keys revoke %s", key.ID, err, key.ID)})
		}
		done.Revoked = key.ID
	}
	return o.say(done)
}

// clientLine is a client as --list shows it.
type clientLine struct {
	Client string `json:"client"`
	Title  string `json:"title"`
	Over   string `json:"over"` // HTTP, or a program
	File   string `json:"file"`
	State  string `json:"state"`
	Docs   string `json:"documentation"`
}

func (o *connecting) showClients() error {
	place, err := clientconfig.Here()
	if err != nil {
		return usagef("%v: set HOME", err)
	}
	var lines []clientLine
	for _, c := range clientconfig.Clients() {
		l := clientLine{c.Name, c.Title, "program", c.Path(place), "connected", c.Docs}
		if c.HTTP {
			l.Over = "HTTP"
		}
		file, err := clientconfig.Read(l.File)
		var entry any
		there := false
		if err == nil {
			entry, there, err = c.Find(file, entryName)
		}
		switch {
		case err != nil:
			l.State = "cannot be changed: " + err.Error()
		case file == nil:
			l.State = "no file"
		case !there:
			l.State = "not connected"
		default:
			if _, id := keyIn(entry); id == "" {
				l.State = "has an entry without a key"
			}
		}
		lines = append(lines, l)
	}
	raw, err := json.Marshal(map[string]any{"clients": lines})
	if err != nil {
		return err
	}
	return o.a.show(raw, func(w io.Writer) error {
		return table(w, "CLIENT|OVER|STATE|FILE", func(row func(...any)) {
			for _, l := range lines {
				row(l.Client, l.Over, l.State, l.File)
			}
		})
	})
}
