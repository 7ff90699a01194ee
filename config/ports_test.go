package config

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

// TestPort: one number moves the ports of all addresses that no flag names; their hosts stay.
func TestPort(t *testing.T) {
	port := func(n int) *int { return &n }
	for _, c := range []struct {
		name    string
		sources Sources
		want    string // http, grpc, metrics and examples
	}{
		{"none", Sources{}, "127.0.0.1:8080 127.0.0.1:50053 127.0.0.1:9090 127.0.0.1:8090"},
		{"all", Sources{Port: port(7000)}, "127.0.0.1:7000 127.0.0.1:7001 127.0.0.1:7002 127.0.0.1:7003"},
		{"free ones", Sources{Port: port(0)}, "127.0.0.1:0 127.0.0.1:0 127.0.0.1:0 127.0.0.1:0"},
		{"the largest", Sources{Port: port(MaxPort)}, "127.0.0.1:65532 127.0.0.1:65533 127.0.0.1:65534 127.0.0.1:65535"},
		{"over the environment", Sources{Port: port(7000), Environ: []string{"TOOLKEEP_METRICS_ADDR=[::1]:9", "L03_HEALTH_PORT=9"}},
			"127.0.0.1:7000 127.0.0.1:7001 [::1]:7002 127.0.0.1:7003"},
		{"a flag wins", Sources{Port: port(7000), Flags: map[string]string{"grpc.addr": "127.0.0.1:9", "L03_METRICS_PORT": "8"}},
			"127.0.0.1:7000 127.0.0.1:9 127.0.0.1:8 127.0.0.1:7003"},
		{"off stays", Sources{Port: port(7000), Environ: []string{"TOOLKEEP_GRPC_ADDR=off"}},
			"127.0.0.1:7000 off 127.0.0.1:7002 127.0.0.1:7003"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := load(t, c.sources)
			if all := strings.Join([]string{got.HTTP.Addr, got.GRPC.Addr, got.Metrics.Addr, got.Examples.Addr}, " "); all != c.want {
				t.Errorf("the addresses are %s, want %s", all, c.want)
			}
			for _, l := range got.Listeners() {
				if _, err := netip.ParseAddrPort(l.Addr); err != nil {
					t.Errorf("%s is listened on at %s: %v", l.Setting, l.Addr, err)
				}
			}
			var b strings.Builder
			if err := got.Print(&b); err != nil {
				t.Fatal(err)
			}
			if said := strings.Contains(b.String(), ":7000 # flag port\n"); said != (c.sources.Port != nil && *c.sources.Port == 7000) {
				t.Errorf("the source of the port is not told:\n%s", b.String())
			}
		})
	}
}

// TestDataDirectory: the default is the same as the command line's, and each source is stronger.
func TestDataDirectory(t *testing.T) {
	home := t.TempDir()
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		sources Sources
		want    string
	}{
		{Sources{}, "data"},
		{Sources{Environ: []string{"HOME=" + home}}, filepath.Join(home, ".local", "share", "toolkeep")},
		{Sources{Environ: []string{"HOME=" + home, "XDG_DATA_HOME=/srv/x"}}, "/srv/x/toolkeep"},
		{Sources{Environ: []string{"HOME=" + home, "TOOLKEEP_DATA=/srv/y"}}, "/srv/y"},
		{Sources{Environ: []string{"HOME=" + home}, Flags: map[string]string{"data": "data"}}, "data"},
	} {
		if got := load(t, c.sources); got.Data != c.want {
			t.Errorf("%+v: the data directory is %s, want %s", c.sources, got.Data, c.want)
		}
	}
}
