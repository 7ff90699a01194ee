package redis

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, c Config) *Client {
	t.Helper()
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// servers runs the test against an in-process and a real server; both must behave the
// same.
func servers(t *testing.T, run func(t *testing.T, url string, pass func(time.Duration))) {
	t.Run("in process", func(t *testing.T) {
		s := miniredis.RunT(t)
		run(t, "redis://"+s.Addr(), s.FastForward)
	})
	t.Run("real", func(t *testing.T) {
		s := redistest.Start(t)
		run(t, s.URL(), nil)
	})
}

func TestCacheKeepsForAWhile(t *testing.T) {
	servers(t, func(t *testing.T, url string, pass func(time.Duration)) {
		client := open(t, Config{URL: url})
		c := client.Cache("demo", 0, nil)
		if v, err := c.Get(t.Context(), "a"); v != nil || err != nil {
			t.Fatalf("%q %v before anything was put", v, err)
		}
		want := []byte("\x00\xff bytes")
		if err := c.Put(t.Context(), "a", want, time.Hour); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Get(t.Context(), "a"); !bytes.Equal(v, want) || err != nil {
			t.Fatalf("%q %v", v, err)
		}
		if v, err := client.Cache("other", 0, nil).Get(t.Context(), "a"); v != nil || err != nil {
			t.Fatalf("another cache has %q %v", v, err)
		}
		if left, err := client.Pool().PTTL(t.Context(), "toolkeep:{demo}:a").Result(); err != nil || left <= 59*time.Minute || left > time.Hour {
			t.Fatalf("%v left of an hour, %v", left, err)
		}
		if pass != nil {
			pass(time.Hour)
			if v, err := c.Get(t.Context(), "a"); v != nil || err != nil {
				t.Fatalf("%q %v after its time", v, err)
			}
		}
		if err := client.Pool().RPush(t.Context(), "toolkeep:{demo}:list", "x").Err(); err != nil {
			t.Fatal(err)
		}
		if v, err := c.Get(t.Context(), "list"); v != nil || err != nil {
			t.Errorf("%q %v for what is not a value", v, err)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	servers(t, func(t *testing.T, url string, _ func(time.Duration)) {
		now := time.Now()
		client := open(t, Config{URL: url, Prefix: "p:"})
		c := client.Cache("few", 10, func() time.Time { now = now.Add(time.Millisecond); return now })
		for i := range 25 {
			if err := c.Put(t.Context(), fmt.Sprint(i), []byte("v"), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		// Put each again: the count is of names, not of puts.
		for i := 15; i < 25; i++ {
			if err := c.Put(t.Context(), fmt.Sprint(i), []byte("w"), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 25 {
			v, err := c.Get(t.Context(), fmt.Sprint(i))
			if err != nil || (v != nil) != (i >= 15) {
				t.Errorf("%d: %q %v, want the ten newest", i, v, err)
			}
		}
		keys, err := client.Pool().Keys(t.Context(), "*").Result()
		if err != nil || len(keys) != 11 {
			t.Errorf("%d keys, want ten and the list of their names: %v %v", len(keys), keys, err)
		}
		for _, k := range keys {
			if !strings.HasPrefix(k, "p:{few}:") {
				t.Errorf("a key outside of the prefix: %s", k)
			}
			if left, err := client.Pool().PTTL(t.Context(), k).Result(); err != nil || left <= 0 {
				t.Errorf("%s never ends: %v %v", k, left, err)
			}
		}
		// Expired entries make room without evicting others.
		now = now.Add(59 * time.Minute)
		if err := c.Put(t.Context(), "short", []byte("v"), time.Minute); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * time.Minute)
		if err := c.Put(t.Context(), "new", []byte("v"), time.Hour); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Pool().ZCard(t.Context(), "p:{few}:names").Result(); err != nil || n != 1 {
			t.Errorf("%d names, want that of the new one alone: %v", n, err)
		}
	})
}

// TestNamesOutliveShortValues: the list of names, by which entries are bounded, lasts as long as the longest value.
func TestNamesOutliveShortValues(t *testing.T) {
	s := redistest.Start(t)
	client := open(t, Config{URL: s.URL(), Prefix: "p:"})
	c := client.Cache("few", 0, nil)
	for _, life := range []time.Duration{time.Minute, time.Hour, time.Second} {
		if err := c.Put(t.Context(), life.String(), []byte("v"), life); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := client.Pool().PTTL(t.Context(), "p:{few}:names").Result(); err != nil || left < 50*time.Minute {
		t.Errorf("the list ends in %v: %v", left, err)
	}
}

// TestServerAway: errors while the server is down, none afterwards.
func TestServerAway(t *testing.T) {
	s := redistest.Start(t)
	client := open(t, Config{URL: s.URL()})
	c := client.Cache("x", 0, nil)
	if err := errors.Join(client.Health(t.Context()), c.Put(t.Context(), "a", []byte("v"), time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.Down(t)
	if err := client.Health(t.Context()); err == nil {
		t.Error("a server that is gone is healthy")
	}
	if _, err := c.Get(t.Context(), "a"); err == nil {
		t.Error("a server that is gone answers")
	}
	s.Up(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for client.Health(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("it did not come back")
		}
	}
	if v, err := c.Get(t.Context(), "a"); v != nil || err != nil {
		t.Errorf("%q %v of a new server", v, err)
	}
	s.Freeze(t)
	short, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	if _, err := c.Get(short, "a"); err == nil {
		t.Error("a frozen server answers")
	}
	s.Thaw(t)
}

func TestPassword(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "open sesame")
	asked := 0
	client := open(t, Config{URL: s.TCP("redis"), Password: func(context.Context) (string, error) { asked++; return "open sesame", nil }, Conns: 1})
	for range 2 {
		if err := client.Health(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("the password was asked for %d times, want once a connection", asked)
	}
	wrong := open(t, Config{URL: s.TCP("redis"), Password: func(context.Context) (string, error) { return "hunter2", nil }})
	if err := wrong.Health(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("with a wrong password: %v", err)
	}
}

// TestLeastRights: the rights listed in docs/caches.md are sufficient.
func TestLeastRights(t *testing.T) {
	raw, err := os.ReadFile("../../docs/caches.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "`~toolkeep:* ")
	rights, _, ok := strings.Cut(rest, "`")
	if !ok {
		t.Fatal("docs/caches.md names no rights")
	}
	s := redistest.Start(t, append([]string{"--user", "keeper", "on", ">open sesame", "~toolkeep:*"}, strings.Fields(rights)...)...)
	client := open(t, Config{URL: strings.Replace(s.TCP("redis"), "://", "://keeper@", 1) + "/1", Name: "a-node",
		Password: func(context.Context) (string, error) { return "open sesame", nil }})
	now := time.Now()
	c := client.Cache("few", 1, func() time.Time { now = now.Add(time.Millisecond); return now })
	err = errors.Join(client.Health(t.Context()), c.Put(t.Context(), "a", []byte("v"), time.Hour), c.Put(t.Context(), "b", []byte("v"), time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(t.Context(), "b"); string(v) != "v" || err != nil {
		t.Errorf("%q %v", v, err)
	}
}

// authority writes a self-signed certificate for 127.0.0.1 and its key.
func authority(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// TestCheck: the addresses and servers that cannot be used are refused before anything starts.
func TestCheck(t *testing.T) {
	for want, c := range map[string]Config{
		"must be rediss://": {URL: "redis://redis.example:6379"},
		"redis.ca_file":     {URL: "rediss://redis.example", CAFile: "no/such/file"},
		"is not rediss://":  {URL: "unix:///s", ServerName: "x"},
	} {
		if err := Check(t.Context(), c, "demo"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	s := miniredis.RunT(t)
	one := Config{URL: "redis://" + s.Addr(), Timeout: 10 * time.Second}
	if err := Check(t.Context(), one, "demo"); err != nil {
		t.Error(err)
	}
	s.SetError("MOVED 11558 127.0.0.1:7002")
	if err := Check(t.Context(), one, "demo"); err == nil || !strings.Contains(err.Error(), "node of a Redis cluster") {
		t.Error(err)
	}
	if err := Check(t.Context(), one); err != nil { // it is asked for no cache
		t.Error(err)
	}
	s.SetError("NOAUTH Authentication required.") // who cannot ask says nothing
	if err := Check(t.Context(), one, "demo"); err != nil {
		t.Error(err)
	}
	s.Close() // a server that is away keeps nothing from starting
	if err := Check(t.Context(), one, "demo"); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	cert, key := authority(t)
	s := redistest.Start(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	mutual := open(t, Config{URL: s.TCP("rediss"), CAFile: cert, CertFile: cert, KeyFile: key})
	if err := mutual.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"an authority that is not known": {CertFile: cert, KeyFile: key},
		"no certificate of its own":      {CAFile: cert},
		"another name":                   {CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "redis.example"},
	} {
		c.URL = s.TCP("rediss")
		if err := open(t, c).Health(t.Context()); err == nil {
			t.Errorf("%s: connected", name)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	cert, _ := authority(t)
	for url, want := range map[string]string{
		"":                               "must begin with",
		"http://127.0.0.1":               "must begin with",
		"redis://user:hunter2@127.0.0.1": "holds a password",
		"redis://redis.example:6379":     "must be rediss://",
		"redis://":                       "names no host",
		"rediss://h/zero":                "is not a number",
		"rediss://h/-1":                  "is not a number",
		"unix://":                        "names no socket",
		"unix://host/path":               "names no socket",
		"rediss://h?read_timeout=1":      "parameters beside db",
		"rediss://h#x":                   "parameters beside db",
		"redis://h\x00unter2":            "cannot be read",
	} {
		_, err := New(Config{URL: url})
		var e *toolkeep.Error
		if !errors.As(err, &e) || e.Code != toolkeep.InvalidManifest || !strings.Contains(err.Error(), want) || strings.Contains(fmt.Sprintf("%v %+v", err, err), "unter2") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	for want, c := range map[string]Config{
		"is not rediss":     {URL: "redis://127.0.0.1", CAFile: cert},
		"go together":       {URL: "rediss://h", CertFile: cert},
		"no PEM":            {URL: "rediss://h", CAFile: os.DevNull},
		"redis.ca_file":     {URL: "rediss://h", CAFile: filepath.Join(t.TempDir(), "none")},
		"redis.client_cert": {URL: "rediss://h", CertFile: os.DevNull, KeyFile: os.DevNull},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, url := range []string{"redis://127.0.0.1", "redis://localhost/3", "redis://[::1]:1", "rediss://me@redis.example:1/2", "unix:///s?db=4"} {
		c, err := New(Config{URL: url})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		_ = c.Close()
	}
}

func BenchmarkGet(b *testing.B) {
	s := redistest.Start(b)
	client, err := New(Config{URL: s.URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	c := client.Cache("b", 0, nil)
	if err := c.Put(b.Context(), "k", make([]byte, 1500), time.Hour); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get(b.Context(), "k"); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMessages: who listens hears each message of the channel and a new connection, until Close.
func TestMessages(t *testing.T) {
	servers(t, func(t *testing.T, url string, _ func(time.Duration)) {
		other := open(t, Config{URL: url, Prefix: "other:"})
		client, err := New(Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan struct{}, 100)
		client.Subscribe("news", func() { heard <- struct{}{} })
		<-heard // it has connected
		for _, c := range []*Client{client, other, client} {
			if err := c.Publish(t.Context(), "news", "x"); err != nil {
				t.Fatal(err)
			}
		}
		<-heard
		<-heard
		if err := client.pool.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err(); err == nil { // the real server has it
			<-heard
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		if len(heard) != 0 {
			t.Errorf("%d more", len(heard))
		}
		var none *Client
		none.Subscribe("news", nil)
		if err := none.Publish(t.Context(), "news", "x"); err != nil {
			t.Error(err)
		}
	})
}
