package config

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestEgressConfig(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(none, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := Egress{Proxy: "http://u:hunter2@proxy.example:3128", ProxyNames: "checked", TLSMin: "1.3",
		MaxConns: 5, IdleConns: 2, IdleTimeout: time.Second, ConnectTimeout: 2 * time.Second, MaxHeader: 4096}
	c, err := e.Pool()
	if err != nil || c.Proxy == nil || c.MinTLS != tls.VersionTLS13 || c.ConnsPerHost != 5 || c.IdlePerHost != 2 || c.Idle < 2 ||
		c.IdleTimeout != time.Second || c.ConnectTimeout != 2*time.Second || c.MaxHeaderBytes != 4096 || c.RootCAs != nil {
		t.Errorf("%+v, %v", c, err)
	}
	for name, s := range map[string]Egress{
		"egress.proxy":    {Proxy: "ftp://u:hunter2@proxy.example"},
		"egress.ca_files": {CAFiles: []string{none}},
	} {
		_, err := s.Pool()
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.InvalidManifest || !strings.Contains(e.Message, name) || strings.Contains(e.Message, "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
