// Package doctor checks the data directory, the store, the server and the machine, and
// says what to do. It changes nothing and does not disturb a server that runs.
package doctor

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
)

// Thresholds of warnings and failures.
const (
	diskWarn   = 1 << 30
	diskFail   = 100 << 20
	lagWarn    = 10_000 // calls not in the table of calls
	clockWarn  = 2 * time.Second
	clockFail  = 10 * time.Second // a node is not ready then
	expiryWarn = 14 * 24 * time.Hour
	askTimeout = 5 * time.Second // per request, also to PostgreSQL
)

// States of a Finding. A Warn is worth a look; a Fail keeps a server from working or
// starting.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
)

// Finding is what one check found.
type Finding struct {
	Check  string `json:"check"`
	State  string `json:"state"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// File is what a database file says of itself.
type File struct {
	Schema, Newest  int64 // version of the schema, and the newest that this program supports
	Bytes, WALBytes int64
	Head            int64     // of the feed
	LastAt          time.Time // of the newest change
	Faults          []string  // what is damaged
}

// Server is what a shared database says of itself.
type Server struct {
	Server                string               // version of PostgreSQL
	Schema, Newest, Floor int64                // versions of the schema: its own, the newest that this program supports, the oldest that may use it
	Ahead, Within         time.Duration        // how far its clock is ahead of this machine's, give or take Within
	Nodes                 []toolkeep.NodeState // that live
	Pooled                bool                 // a pooler stands before it
}

// Store reads the store of the settings past what serves it.
type Store interface {
	File(ctx context.Context, path string) (File, error) // without PostgreSQL
	Server(ctx context.Context) (Server, error)          // with PostgreSQL
	// SealCheck gives the body of the document by which a start knows its sealing keys.
	SealCheck(ctx context.Context) ([]byte, error)
}

// Listener is an address that a server would listen on.
type Listener struct{ Name, Addr string }

// Config is what the settings say of a server.
type Config struct {
	Data, Blobs   string // folders
	Archive       string // folder of the audit's archive; "" without one
	SealKey       string // file
	KeysElsewhere bool   // the sealing keys come from TOOLKEEP_SEAL_KEY
	Shared        bool   // the store is PostgreSQL
	Direct        bool   // nodes have a connection past a pooler
	WALBytes      int64
	Listeners     []Listener
	Cert, Key     string // files of TLS; "" without
	ClientCA      bool   // the server asks clients for certificates
	Version       string // of this program

	Store Store
	// Compare finds what the settings have otherwise than the nodes that live.
	Compare   func(live []toolkeep.NodeState) []Finding
	ServerTLS func() error // reads the files of TLS as a server would
	CheckSeal func(check []byte) (known bool, err error)
	// Certificate is shown to a server that asks for one; HasCertificate says whether
	// there is one to show.
	Certificate    func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	HasCertificate bool
	Quote          func(path string) string // for a shell
}

// Check carries out all checks. A whole database file is read once.
func Check(ctx context.Context, c Config) []Finding {
	d := &doctor{c: &c}
	d.all(ctx)
	return d.found
}

// doctor collects findings. Later checks use what earlier ones learned.
type doctor struct {
	c       *Config
	found   []Finding
	server  datadir.ServerFile
	answers bool // the server answered
	pid     int  // the process that holds the data directory
}

func (d *doctor) add(check, state, advice, format string, args ...any) {
	d.found = append(d.found, Finding{Check: check, State: state, Found: fmt.Sprintf(format, args...), Advice: advice})
}

func (d *doctor) all(ctx context.Context) {
	there := d.directory()
	if there {
		d.holder()
		d.answer(ctx)
	}
	if d.c.Shared {
		d.postgres(ctx)
	} else if there {
		d.sqlite(ctx)
	}
	d.keyFiles(ctx, there)
	d.spool()
	d.archive()
	d.metrics(ctx)
	d.disk()
	d.listeners(ctx)
	d.certificate()
}

func (d *doctor) directory() bool {
	dir := d.c.Data
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.add("data", "warn", "is --data right?", "%s is not there; serve makes it", dir)
		return false
	case err != nil:
		d.add("data", "fail", "give the user that runs serve access to it", "%s cannot be read: %v", dir, err)
		return false
	case !fi.IsDir():
		d.add("data", "fail", "name another with --data", "%s is not a directory", dir)
		return false
	}
	owner, known := fi.Sys().(*syscall.Stat_t)
	switch {
	case known && int(owner.Uid) != os.Geteuid() && os.Geteuid() != 0:
		d.add("data", "warn", "run as its owner", "%s belongs to user %d, this is user %d", dir, owner.Uid, os.Geteuid())
	case fi.Mode().Perm()&0o077 != 0:
		d.add("data", "warn", "chmod 700 "+d.c.Quote(dir), "%s is open to others than its owner (mode %04o)", dir, fi.Mode().Perm())
	default:
		d.add("data", "ok", "", "%s, mode %04o", dir, fi.Mode().Perm())
	}
	return true
}

func (d *doctor) holder() {
	pid, err := datadir.Holder(d.c.Data)
	d.pid = pid
	switch {
	case err != nil:
		d.add("lock", "fail", "give the user that runs serve access to it", "the lock cannot be read: %v", err)
	case pid != 0:
		d.add("lock", "ok", "", "held by process %d", pid)
	default:
		d.add("lock", "ok", "", "free: no server runs on the directory")
	}
}

// answer asks the directory's server for its health.
func (d *doctor) answer(ctx context.Context) {
	info, err := datadir.ReadServerFile(d.c.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.pid == 0:
		d.add("server", "ok", "", "not running")
		return
	case errors.Is(err, fs.ErrNotExist):
		d.add("server", "warn", "run doctor again in a moment", "process %d holds the directory and has not written where it listens: it is starting, stopping, or not a server", d.pid)
		return
	case err != nil:
		d.add("server", "fail", "restart the server", "server.json cannot be read: %v", err)
		return
	case d.pid == 0:
		d.add("server", "warn", "start it again", "server.json is there and no server runs: process %d ended without stopping", info.PID)
		return
	}
	raw, err := d.ask(ctx, info.URL+"/health/ready")
	if err != nil && d.c.ClientCA && !d.c.HasCertificate {
		d.add("server", "warn", "give doctor a client certificate: --client-cert and --client-key", "%s asks for one and was not checked: %v", info.URL, err)
		return
	}
	if err != nil {
		d.add("server", "fail", "read its log, and restart it", "%s does not answer: %v", info.URL, err)
		return
	}
	d.server, d.answers = info, true
	var health struct {
		Status  string `json:"status"`
		Version string `json:"version"`
	}
	if err := json.Unmarshal(raw, &health); err != nil {
		d.add("server", "fail", "see what listens there", "%s gives an answer that is not Toolkeep's: %v", info.URL, err)
		return
	}
	switch {
	case health.Status != "UP":
		d.add("server", "warn", "`curl "+info.URL+"/health/ready` names the part", "%s says %s", info.URL, toolkeep.Clip(health.Status, 40))
	case info.Version != d.c.Version:
		d.add("server", "warn", "restart the server, or use its program", "%s runs version %s, this program is %s", info.URL, toolkeep.Clip(info.Version, 40), d.c.Version)
	default:
		d.add("server", "ok", "", "%s answers, version %s", info.URL, info.Version)
	}
}

// ask fetches a page of the local server. It sends no secrets; the certificate must be the configured one, for any
// name. A server with tls.client_ca refuses connections without a client certificate.
func (d *doctor) ask(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify:   true,
		GetClientCertificate: d.c.Certificate,
		VerifyConnection: func(s tls.ConnectionState) error {
			pair, err := tls.LoadX509KeyPair(d.c.Cert, d.c.Key)
			if err != nil {
				return err
			}
			own, err := x509.ParseCertificate(pair.Certificate[0])
			if err != nil {
				return err
			}
			if !own.Equal(s.PeerCertificates[0]) {
				return errors.New("it shows a certificate other than tls.cert: if tls.cert was renewed, restart the server")
			}
			return nil
		},
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, 64<<20))
}

func (d *doctor) sqlite(ctx context.Context) {
	path := filepath.Join(d.c.Data, datadir.Database)
	info, err := d.c.Store.File(ctx, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.add("store", "ok", "", "%s is not there yet; serve makes it", path)
		return
	case err != nil:
		d.add("store", "fail", "restore a backup if it is damaged", "%s cannot be read: %v", path, err)
		return
	case len(info.Faults) > 0:
		d.add("store", "fail", "stop the server, and restore a backup", "%s is damaged: %s", path, info.Faults[0])
		return
	}
	d.add("store", "ok", "", "%s is whole, %s", path, datadir.SizeText(uint64(info.Bytes)))
	d.schema(info.Schema, info.Newest, info.Newest+1)
	if most := d.c.WALBytes; info.WALBytes > 2*most {
		d.add("wal", "warn", "end long reads, such as a backup", "the write-ahead log has %s, twice its limit of %s", datadir.SizeText(uint64(info.WALBytes)), datadir.SizeText(uint64(most)))
	} else {
		d.add("wal", "ok", "", "the write-ahead log has %s", datadir.SizeText(uint64(info.WALBytes)))
	}
	if ahead := time.Until(info.LastAt); ahead > clockWarn {
		d.add("clock", "fail", "set the machine's clock", "the newest change of the store was made %s after now", ahead.Round(time.Second))
		return
	}
	d.add("clock", "ok", "", "not before the newest change of the store")
}

// schema checks a schema version; a program works with a newer one whose floor it knows.
func (d *doctor) schema(has, knows, floor int64) {
	switch {
	case has == 0:
		d.add("schema", "ok", "", "none yet; serve makes it")
	case has > knows && floor > knows:
		d.add("schema", "fail", "use the newer program", "version %d, this program supports %d at most", has, knows)
	case has > knows:
		d.add("schema", "warn", "update this node", "version %d, this program supports %d and can work with it", has, knows)
	case has < knows:
		d.add("schema", "ok", "", "version %d; the next start of this program makes it %d", has, knows)
	default:
		d.add("schema", "ok", "", "version %d", has)
	}
}

func (d *doctor) postgres(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	info, err := d.c.Store.Server(ctx)
	if err != nil {
		d.add("store", "fail", "look at store.dsn and at the database", "%v", err)
		return
	}
	d.add("store", "ok", "", "PostgreSQL %s answers", info.Server)
	if info.Pooled && !d.c.Direct {
		d.add("pooler", "warn", "set store.direct_dsn to PostgreSQL itself", "a pooler stands before PostgreSQL, so notifications do not arrive; nodes ask every 500 ms what others changed")
	} else if info.Pooled {
		d.add("pooler", "ok", "", "a pooler stands before PostgreSQL; notifications come past it (store.direct_dsn)")
	}
	d.schema(info.Schema, info.Newest, info.Floor)
	off := max(0, info.Ahead.Abs()-info.Within)
	state, advice := "ok", ""
	switch {
	case off > clockFail:
		state, advice = "fail", "set the clocks of both machines (NTP)"
	case off > clockWarn:
		state, advice = "warn", "set the clocks of both machines (NTP)"
	}
	d.add("clock", state, advice, "the database's clock is %s off this machine's, give or take %s",
		info.Ahead.Round(time.Millisecond), max(info.Within, time.Millisecond).Round(time.Millisecond))
	if d.c.Compare == nil {
		return
	}
	if found := d.c.Compare(info.Nodes); len(found) > 0 {
		d.found = append(d.found, found...)
	} else {
		d.add("nodes", "ok", "", "%d live, and agree with the settings", len(info.Nodes))
	}
}

// keyFiles checks the files that only their owner may access.
func (d *doctor) keyFiles(ctx context.Context, there bool) {
	sealFault := d.sealFault(ctx)
	for _, f := range []struct{ name, path string }{{datadir.SealKey, d.c.SealKey}, {datadir.AdminKey, filepath.Join(d.c.Data, datadir.AdminKey)}} {
		fi, err := os.Stat(f.path)
		_, dbErr := os.Stat(filepath.Join(d.c.Data, datadir.Database))
		switch {
		case f.name == datadir.SealKey && sealFault != nil && (err == nil && fi.Mode().Perm()&0o077 == 0 || errors.Is(err, fs.ErrNotExist) || d.c.KeysElsewhere):
			d.add(f.name, "fail", "put the key back, from a backup or its volume", "%s", sealFault.Message)
		case f.name == datadir.SealKey && d.c.KeysElsewhere:
			d.add(f.name, "ok", "", "the sealing keys come from secrets.seal_keys (TOOLKEEP_SEAL_KEY)")
		case errors.Is(err, fs.ErrNotExist) && f.name == datadir.SealKey && d.c.Shared:
			d.add(f.name, "warn", "copy it from another node, or let the first node make it", "%s is not there; all nodes need the same", f.path)
		case errors.Is(err, fs.ErrNotExist) && f.name == datadir.SealKey && there && dbErr == nil:
			d.add(f.name, "warn", "put it back from a backup", "%s is not there; without it waiting calls cannot be read", f.path)
		case errors.Is(err, fs.ErrNotExist): // not yet made, or removed, which is allowed
		case err != nil:
			d.add(f.name, "fail", "give the user that runs serve access to it", "%v", err)
		case fi.Mode().Perm()&0o077 != 0:
			state := "warn"
			if f.name == datadir.SealKey {
				state = "fail" // the server refuses it
			}
			d.add(f.name, state, "chmod 600 "+d.c.Quote(f.path), "%s is open to others than its owner (mode %04o)", f.path, fi.Mode().Perm())
		default:
			d.add(f.name, "ok", "", "%s, mode %04o", f.path, fi.Mode().Perm())
		}
	}
}

// sealFault says why the store cannot be opened with the sealing keys of the settings;
// nil where it can, or where that cannot be told.
func (d *doctor) sealFault(ctx context.Context) *toolkeep.Error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	check, err := d.c.Store.SealCheck(ctx)
	if err != nil {
		return nil // store says what is wrong with it, or there is no check yet
	}
	if known, err := d.c.CheckSeal(check); known && err != nil {
		return toolkeep.AsError(err)
	}
	return nil
}

func (d *doctor) spool() {
	fi, err := os.Stat(filepath.Join(d.c.Data, datadir.Spool))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		d.add("spool", "fail", "give the user that runs serve access to it", "%v", err)
	case err != nil || fi.Size() == 0:
		d.add("spool", "ok", "", "empty")
	default:
		d.add("spool", "warn", "check that the store works; the server then writes them", "records of %s wait for the store", datadir.SizeText(uint64(fi.Size())))
	}
}

// metrics reads values that only the running server has.
func (d *doctor) metrics(ctx context.Context) {
	if !d.answers {
		return
	}
	raw, err := d.ask(ctx, d.server.Metrics)
	if err != nil {
		d.add("metrics", "warn", "look at metrics.addr", "%s does not answer: %v", d.server.Metrics, err)
		return
	}
	values := sampleValues(string(raw), append(archiveSamples, "toolkeep_store_index_lag", "toolkeep_spool_lost_total")...)
	if lag, ok := values["toolkeep_store_index_lag"]; ok {
		state, advice := "ok", ""
		if lag > lagWarn {
			state, advice = "warn", "the machine or its disk is too slow for the load"
		}
		d.add("lag", state, advice, "%.0f calls are not in the table of calls yet", lag)
	}
	if lost := values["toolkeep_spool_lost_total"]; lost > 0 {
		d.add("records", "warn", "see the log for when and why", "%.0f records of calls were lost since the server started", lost)
	}
	d.archiving(values)
}

// sampleValues finds unlabelled samples in Prometheus text.
func sampleValues(text string, names ...string) map[string]float64 {
	found := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		for _, name := range names {
			if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
				if v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); err == nil {
					found[name] = v
				}
			}
		}
	}
	return found
}

func (d *doctor) disk() {
	seen := map[string]bool{}
	for _, dir := range []string{d.c.Data, d.c.Blobs, cmp.Or(d.c.Archive, d.c.Data)} {
		dir = existing(dir)
		if seen[dir] || dir == filepath.Join(d.c.Data, datadir.Blobs) {
			continue
		}
		seen[dir] = true
		free, err := datadir.Free(dir)
		switch {
		case err != nil:
			d.add("disk", "warn", "", "the free space at %s is not known: %v", dir, err)
		case free < diskFail:
			d.add("disk", "fail", "make room", "%s are free at %s", datadir.SizeText(free), dir)
		case free < diskWarn:
			d.add("disk", "warn", "make room", "%s are free at %s", datadir.SizeText(free), dir)
		default:
			d.add("disk", "ok", "", "%s are free at %s", datadir.SizeText(free), dir)
		}
	}
}

// existing returns the directory, or its nearest existing parent.
func existing(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	for at := abs; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil && at == abs {
			return dir
		} else if err == nil || at == filepath.Dir(at) {
			return at
		}
	}
}

// listeners looks at the ports that the running server wrote down, or, without one, tries to open those of serve.
func (d *doctor) listeners(ctx context.Context) {
	if d.answers {
		d.own(ctx)
		return
	}
	for _, l := range d.c.Listeners {
		free, err := net.Listen("tcp", l.Addr)
		if err != nil {
			d.add(l.Name, "fail", "name another, or stop what uses it", "%v", err)
			continue
		}
		free.Close()
		d.add(l.Name, "ok", "", "%s is free", l.Addr)
	}
}

// own connects to each port of the running server. Its settings may be others than those here, by flags of its start: what
// those here have otherwise is opened, as its next start may. A server does not write down where its examples listen.
func (d *doctor) own(ctx context.Context) {
	has := map[string]string{} // port
	for _, l := range []Listener{{"http.addr", d.server.URL}, {"grpc.addr", d.server.GRPC}, {"metrics.addr", d.server.Metrics}} {
		at := strings.TrimPrefix(strings.TrimPrefix(l.Addr, "http://"), "https://")
		at, _, _ = strings.Cut(at, "/")
		_, port, err := net.SplitHostPort(at)
		if err != nil { // it is off
			continue
		}
		has[l.Name] = port
		differ := ""
		for _, s := range d.c.Listeners {
			if _, here, err := net.SplitHostPort(s.Addr); err == nil && s.Name == l.Name && here != port && here != "0" {
				differ = "; the settings here say " + s.Addr
			}
		}
		conn, err := (&net.Dialer{Timeout: askTimeout}).DialContext(ctx, "tcp", at)
		if err != nil {
			d.add(l.Name, "fail", "read its log, and restart it", "%s is this server's and cannot be connected to: %v", at, err)
			continue
		}
		conn.Close()
		d.add(l.Name, "ok", "", "%s is this server's%s", at, differ)
	}
	for _, l := range d.c.Listeners {
		_, port, err := net.SplitHostPort(l.Addr)
		if err != nil || port == "0" || port == has[l.Name] || l.Name == "examples.addr" {
			continue
		}
		free, err := net.Listen("tcp", l.Addr)
		if err != nil {
			d.add(l.Name, "warn", "name another, or stop what uses it", "a start with the settings here would fail: %v", err)
			continue
		}
		free.Close()
		if has[l.Name] == "" {
			d.add(l.Name, "ok", "", "%s is free; the server that runs has none", l.Addr)
		}
	}
}

func (d *doctor) certificate() {
	if d.c.Cert == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(d.c.Cert, d.c.Key)
	if err != nil {
		d.add("tls", "fail", "look at tls.cert and tls.key", "the certificate cannot be loaded: %v", err)
		return
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		d.add("tls", "fail", "look at tls.cert", "the certificate cannot be read: %v", err)
		return
	}
	if err := d.c.ServerTLS(); err != nil {
		d.add("tls", "fail", "name the file of the authority that signs the clients' certificates", "%v", err)
		return
	}
	end, left := cert.NotAfter.Format(time.DateOnly), time.Until(cert.NotAfter)
	switch {
	case left <= 0:
		d.add("tls", "fail", "renew it, and restart the server", "the certificate ended on %s", end)
	case time.Until(cert.NotBefore) > 0:
		d.add("tls", "fail", "look at the clock and at tls.cert", "the certificate begins on %s", cert.NotBefore.Format(time.DateOnly))
	case left < expiryWarn:
		d.add("tls", "warn", "renew it, and restart the server", "the certificate ends on %s", end)
	default:
		d.add("tls", "ok", "", "the certificate is valid until %s", end)
	}
}
