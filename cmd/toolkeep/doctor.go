package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/control/doctor"
	"github.com/toolkeep/toolkeep/control/nodes"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/blob"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

func (a *app) doctorCmd() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the data directory, the store, the server and the machine, and say what to do",
		Long: `Check the data directory, the store, the server and the machine, and say what to do. It accepts the
settings of serve, changes nothing, and does not disturb a server that runs. The whole database
file is read once (quick_check), which takes a while if it is large. Of a server that runs it looks at the
ports that this one has, and, with a key (TOOLKEEP_KEY, or the admin.key of the data directory), at secrets that its
tools and MCP servers refer to and do not have, and at MCP servers that do not work. It sends the key to this machine
alone, and only where no other user may write into the data directory, unless TOOLKEEP_URL names the server.

A warn deserves attention; a fail keeps a server from working or starting. Exit code 0 means that no check
failed, 4 that one did.`,
		Example: "  toolkeep doctor\n  toolkeep doctor --data /var/lib/toolkeep --config /etc/toolkeep.yaml\n  toolkeep doctor --json | jq '.checks[] | select(.state != \"ok\")'",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load(cmd, &f)
			if err != nil {
				return err
			}
			shown, err := a.tls.settings()
			if err != nil {
				return err
			}
			a.data = c.Data // of a file of settings too
			of := doctorConfig(c)
			of.Certificate, of.HasCertificate = shown.GetClientCertificate, a.tls.shown
			return a.showFindings(a.checkBehind(cmd.Context(), doctor.Check(cmd.Context(), of)))
		},
	}
	f.add(c)
	return a.withJSON(c)
}

func (a *app) showFindings(found []doctor.Finding) error {
	failed := 0
	for _, f := range found {
		if f.State == doctor.Fail {
			failed++
		}
	}
	raw, err := json.Marshal(map[string]any{"ok": failed == 0, "checks": found})
	if err != nil {
		return err
	}
	err = a.show(raw, func(w io.Writer) error {
		return table(w, "CHECK|STATE|WHAT", func(row func(...any)) {
			for _, f := range found {
				what := f.Found
				if f.Advice != "" {
					what += "; " + f.Advice
				}
				row(f.Check, f.State, what)
			}
		})
	})
	if err != nil || failed == 0 {
		return err
	}
	return &failure{code: exitUnavailable, err: fmt.Errorf("%d of %d checks failed", failed, len(found))}
}

// doctorConfig is what doctor checks of the settings.
func doctorConfig(c *config.Config) doctor.Config {
	of := doctor.Config{Data: c.Data, Blobs: c.BlobDir(), Archive: c.Audit.Archive, SealKey: cmp.Or(c.Secrets.SealKey, filepath.Join(c.Data, datadir.SealKey)),
		KeysElsewhere: c.Secrets.SealKeys != "", Shared: c.Store.DSN != "", Direct: c.Store.DirectDSN != "", WALBytes: c.Store.WALBytes,
		Cert: c.TLS.Cert, Key: c.TLS.Key, ClientCA: c.TLS.ClientCA != "", Version: version, Store: storeOf{c}, Quote: quote,
		ServerTLS: func() error { _, err := c.TLS.Server(nil); return err },
		CheckSeal: func(check []byte) (bool, error) {
			return secrets.CheckSeal(secrets.SealConfig{Data: c.Data, KeyFile: c.Secrets.SealKey, Keys: c.Secrets.SealKeys}, check)
		}}
	of.Compare = func(live []toolkeep.NodeState) []doctor.Finding { return compareNodes(c, live) }
	for _, l := range c.Listeners() {
		of.Listeners = append(of.Listeners, doctor.Listener{Name: l.Setting, Addr: l.Addr})
	}
	return of
}

// compareNodes finds what the settings have otherwise than the nodes that live.
func compareNodes(c *config.Config, live []toolkeep.NodeState) (found []doctor.Finding) {
	seal := secrets.SealConfig{Data: c.Data, KeyFile: c.Secrets.SealKey, Keys: c.Secrets.SealKeys}
	facts := nodes.Facts{Blobs: blob.ReadID(c.BlobDir()), Issuers: access.IssuersSum(c.OAuth.IssuersFile)}
	facts.Opens, _ = secrets.KeyIDs(seal) // keyFiles says what is wrong with them
	if c.Vault.TransitKey != "" {
		facts.Opens = append([]string{"transit/" + c.Vault.TransitKey}, facts.Opens...)
	}
	if len(facts.Opens) > 0 {
		facts.Seals = facts.Opens[0]
	}
	self := toolkeep.NodeState{Name: c.Node.Name, Version: cmp.Or(c.Service.Version, version)}
	if self.Name == "" {
		raw, _ := os.ReadFile(filepath.Join(c.Data, datadir.NodeFile)) // a new node has none
		self.Name = strings.TrimSpace(string(raw))
	}
	var err error
	if self.Data, err = json.Marshal(facts); err != nil {
		return []doctor.Finding{{Check: "nodes", State: doctor.Fail, Found: err.Error()}}
	}
	// sealFault compares the key with the store's.
	for _, d := range nodes.Compare(&self, live, func() error { return nil }) {
		state := map[string]string{nodes.Differs: doctor.OK, nodes.Warn: doctor.Warn, nodes.Fail: doctor.Fail}[d.State]
		found = append(found, doctor.Finding{Check: "nodes", State: state, Found: d.Text})
	}
	return found
}

// storeOf is the store of the settings.
type storeOf struct{ c *config.Config }

func (s storeOf) File(ctx context.Context, path string) (doctor.File, error) {
	info, err := sqlite.Inspect(ctx, path)
	return doctor.File(info), err
}

func (s storeOf) Server(ctx context.Context) (doctor.Server, error) {
	info, err := postgres.Inspect(ctx, s.c.Store.DSN)
	return doctor.Server(info), err
}

func (s storeOf) SealCheck(ctx context.Context) ([]byte, error) {
	if s.c.Store.DSN != "" {
		return postgres.ReadDocument(ctx, s.c.Store.DSN, secret.CheckKind, secret.CheckID)
	}
	return sqlite.ReadDocument(ctx, filepath.Join(s.c.Data, datadir.Database), secret.CheckKind, secret.CheckID)
}
