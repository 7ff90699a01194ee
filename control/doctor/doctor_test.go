package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/datadir"
)

// certificateUntil writes a pair of files and gives their names.
func certificateUntil(t *testing.T, end time.Time) *Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.AddDate(-1, 0, 0), NotAfter: end, DNSNames: []string{"tools.example.com"}}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := &Config{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ServerTLS: func() error { return nil }}
	for name, block := range map[string]*pem.Block{files.Cert: {Type: "CERTIFICATE", Bytes: cert}, files.Key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func (d *doctor) only(t *testing.T) Finding {
	t.Helper()
	if len(d.found) != 1 {
		t.Fatalf("%+v", d.found)
	}
	return d.found[0]
}

func TestDoctorCertificate(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		end   time.Time
		state string
	}{
		"valid":   {now.AddDate(0, 3, 0), "ok"},
		"soon":    {now.AddDate(0, 0, 3), "warn"},
		"expired": {now.AddDate(0, 0, -1), "fail"},
		"not yet": {now.AddDate(2, 0, 0), "fail"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doctor{c: certificateUntil(t, c.end)}
			if d.certificate(); d.only(t).State != c.state {
				t.Errorf("%+v, want %s", d.found, c.state)
			}
		})
	}
	d := &doctor{c: &Config{Cert: "missing", Key: "missing"}}
	if d.certificate(); d.only(t).State != "fail" {
		t.Errorf("missing files: %+v", d.found)
	}
}

// TestDoctorAsksOverTLS: doctor accepts the configured certificate, whatever its name.
func TestDoctorAsksOverTLS(t *testing.T) {
	own := certificateUntil(t, time.Now().AddDate(0, 3, 0))
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("hi")) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	defer s.Close()
	d := &doctor{c: own}
	if raw, err := d.ask(t.Context(), s.URL); err != nil || string(raw) != "hi" {
		t.Errorf("%q, %v", raw, err)
	}
	d.c = certificateUntil(t, time.Now().AddDate(0, 3, 0))
	if _, err := d.ask(t.Context(), s.URL); err == nil || !strings.Contains(err.Error(), "a certificate other than tls.cert") {
		t.Errorf("another certificate: %v", err)
	}
}

func TestDoctorListeners(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &Config{Listeners: []Listener{{"http.addr", l.Addr().String()}, {"metrics.addr", "127.0.0.1:0"}}}
	d := &doctor{c: c}
	if d.listeners(t.Context()); len(d.found) != 2 || d.found[0].State != "fail" || d.found[1].State != "ok" {
		t.Errorf("taken and free: %+v", d.found)
	}
	// The ports of the running server are those that it wrote down, whatever the settings here say.
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	c.Listeners[0].Addr = gone.Addr().String()
	d = &doctor{c: c, answers: true, server: datadir.ServerFile{URL: "http://" + l.Addr().String(), GRPC: gone.Addr().String()}}
	d.listeners(t.Context())
	if len(d.found) != 2 || d.found[0].State != "ok" || d.found[0].Found != l.Addr().String()+" is this server's; the settings here say "+c.Listeners[0].Addr ||
		d.found[1].Check != "grpc.addr" || d.found[1].State != "fail" {
		t.Errorf("the server's own: %+v", d.found)
	}
	// What the settings here have otherwise is looked at as well.
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	c.Listeners = []Listener{{"http.addr", other.Addr().String()}, {"grpc.addr", other.Addr().String()}, {"metrics.addr", l.Addr().String()}, {"examples.addr", other.Addr().String()}}
	d = &doctor{c: c, answers: true, server: datadir.ServerFile{URL: "http://" + l.Addr().String(), Metrics: "http://" + l.Addr().String() + "/metrics"}}
	d.listeners(t.Context())
	states := ""
	for _, f := range d.found {
		states += f.Check + " " + f.State + ", "
	}
	if states != "http.addr ok, metrics.addr ok, http.addr warn, grpc.addr warn, " {
		t.Errorf("settings that differ: %+v", d.found)
	}
	c.Listeners = []Listener{{"http.addr", l.Addr().String()}, {"grpc.addr", gone.Addr().String()}}
	d = &doctor{c: c, answers: true, server: datadir.ServerFile{URL: "http://" + l.Addr().String()}}
	d.listeners(t.Context())
	if len(d.found) != 2 || d.found[1].State != "ok" || d.found[1].Found != gone.Addr().String()+" is free; the server that runs has none" {
		t.Errorf("gRPC is off: %+v", d.found)
	}
}

func TestDoctorSchema(t *testing.T) {
	for _, c := range []struct {
		has, knows, floor int64
		state             string
	}{{0, 4, 0, "ok"}, {3, 4, 0, "ok"}, {4, 4, 0, "ok"}, {5, 4, 4, "warn"}, {5, 4, 5, "fail"}} {
		d := &doctor{}
		if d.schema(c.has, c.knows, c.floor); d.only(t).State != c.state {
			t.Errorf("%+v: %+v", c, d.found)
		}
	}
}

func TestSampleValues(t *testing.T) {
	got := sampleValues("# HELP a b\na 1\na_more 2\nb{x=\"y\"} 3\nc 1e+06\n", "a", "b", "c", "d")
	if len(got) != 2 || got["a"] != 1 || got["c"] != 1e6 {
		t.Error(got)
	}
}

// TestDoctorArchive: the folder of the audit's archive, and how the server comes on with it.
func TestDoctorArchive(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	quote := func(s string) string { return s }
	for path, state := range map[string]string{closed: OK, open: Warn, filepath.Join(dir, "none"): Warn, file: Fail} {
		d := &doctor{c: &Config{Archive: path, Quote: quote}}
		if d.archive(); d.only(t).State != state {
			t.Errorf("%+v, want %s", d.found, state)
		}
	}
	d := &doctor{c: &Config{}}
	if d.archive(); len(d.found) != 0 {
		t.Errorf("without one: %+v", d.found)
	}
	for text, states := range map[string][]string{
		"":                                           nil,
		"toolkeep_audit_archive_failing 0":           {OK},
		"toolkeep_audit_archive_failing 1":           {Fail},
		"toolkeep_audit_archive_held_seconds 90":     {Warn},
		"toolkeep_audit_archive_missed_total 3":      {Fail},
		"toolkeep_audit_archive_missed_total 0":      {OK},
		"toolkeep_audit_archive_held_seconds 1e+05":  {Warn},
		"toolkeep_audit_archive_failures_total 1234": {OK},
	} {
		if text != "" && !strings.Contains(text, "failing") {
			text = "toolkeep_audit_archive_failing 0\n" + text
		}
		d := &doctor{c: &Config{Quote: quote}}
		d.archiving(sampleValues(text+"\n", archiveSamples...))
		if len(d.found) != len(states) || len(states) == 1 && d.found[0].State != states[0] {
			t.Errorf("%q: %+v, want %v", text, d.found, states)
		}
	}
}
