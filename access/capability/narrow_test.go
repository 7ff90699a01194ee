package capability

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Things that random tokens speak of.
var (
	somePatterns = []string{"a.*", "*.x", "a.x", "a.y", "b.x", "?.x", "a.[xy]", "*"}
	someIDs      = []string{"a.x", "a.y", "b.x", "b.y", "ab.x"}
	someRanges   = []string{"", "^1.0.0", ">=1.1.0 <2.0.0", "1.2.0", "1.1.0", "2.0.0", "~1.2.0", "1.x", "*"}
	someVersions = []string{"1.0.0", "1.1.0", "1.2.0", "1.2.3", "2.0.0", "1.2.0-rc.1", "3.0.0"}
	somePaths    = []string{"/", "/a", "/a/b", "/a/bc", "/ab", "/a/b/c"}
	someHosts    = []string{"h", "*.h", "a.h", "*.a.h", "b.a.h", "xh"}
	somePorts    = []int{80, 443, 5432}
	someSecrets  = []string{"s", "secret://s", "secret://t", "env://S", "t"}
)

func some[T any](r *rand.Rand, all []T) []T {
	out := []T{}
	for _, v := range all {
		if r.IntN(3) == 0 {
			out = append(out, v)
		}
	}
	return out
}

// randomGrant returns a grant; absent says how many of ten claims are left out.
func randomGrant(r *rand.Rand, absent int) toolkeep.Grant {
	there := func() bool { return r.IntN(10) >= absent }
	g := toolkeep.Grant{Tenant: "acme", Agent: "did:agent:a", Tools: some(r, somePatterns)}
	if len(g.Tools) == 0 {
		g.Tools = []string{somePatterns[r.IntN(len(somePatterns))]}
	}
	if there() {
		g.Version = someRanges[r.IntN(len(someRanges))]
	}
	if there() {
		g.Operations = some(r, []string{"execute", "read"})
	}
	if there() {
		g.Files = &toolkeep.FileGrant{Paths: some(r, somePaths), Mode: []string{"", "rw"}[r.IntN(2)]}
	}
	if there() {
		g.Network = &toolkeep.NetworkGrant{Hosts: some(r, someHosts)}
		if there() {
			g.Network.Ports = some(r, somePorts)
		}
	}
	if there() {
		g.Secrets = &toolkeep.CredentialGrant{Secrets: some(r, someSecrets)}
	}
	return g
}

// allowed lists everything of the world above that a token allows.
func allowed(v *Token) map[string]bool {
	out := map[string]bool{}
	add := func(ok bool, parts ...string) {
		if ok {
			out[strings.Join(parts, " ")] = true
		}
	}
	g := &v.Grant
	for _, id := range someIDs {
		for _, version := range someVersions {
			for _, writes := range []bool{false, true} {
				add(v.Allows(agent, tool(id, version, writes)) == nil, "call", id, version, map[bool]string{true: "writes"}[writes])
			}
		}
	}
	for _, h := range []string{"h", "a.h", "b.a.h", "c.h", "xh", "evil"} {
		for _, p := range append([]int{22}, somePorts...) {
			add(g.AllowsHost(h, p), "host", h, string(rune(p)))
		}
	}
	for _, s := range []string{"secret://s", "secret://t", "env://S", "env://T"} {
		add(g.AllowsSecret(s), "secret", s)
	}
	for _, p := range append([]string{"/c"}, somePaths...) {
		in := g.Files == nil
		for i := 0; g.Files != nil && i < len(g.Files.Paths); i++ {
			dir := g.Files.Paths[i]
			in = in || dir == "/" || p == dir || strings.HasPrefix(p, dir+"/")
		}
		add(in, "read", p)
		add(in && (g.Files == nil || g.Files.Write()), "write", p)
	}
	return out
}

// TestAttenuationOnlyNarrows: what a child that was made allows, its parent allows, and the
// child's own wish too.
func TestAttenuationOnlyNarrows(t *testing.T) {
	clk := newClock()
	v := newTokens(t, Config{}, newStore(), clk)
	r := rand.New(rand.NewPCG(1, 2))
	made, refused, narrower := 0, 0, 0
	for range 3000 {
		parent := tokenOf(&Claims{Grant: randomGrant(r, 5), IssuedAt: clk.Now(), Expires: clk.Now().Add(time.Hour)})
		parent.Grant.ID = "parent"
		want := randomGrant(r, 8)
		if r.IntN(2) == 0 {
			want.Tools = parent.Grant.Tools
		}
		c := Claims{Grant: want}
		if r.IntN(2) == 0 {
			c.Expires = clk.Now().Add(time.Duration(r.IntN(120)+1) * time.Minute)
		}
		out, faults := within(c, parent)
		if faults = append(faults, v.check(&out, clk.Now())...); len(faults) > 0 {
			refused++
			continue
		}
		made++
		child := tokenOf(&out)
		own := tokenOf(&Claims{Grant: want})
		atMost, asked := allowed(parent), allowed(own)
		for what := range allowed(child) {
			if !atMost[what] || !asked[what] {
				t.Fatalf("the child allows %q (parent %v, wish %v)\nparent %+v\nwish %+v\nchild %+v", what, atMost[what], asked[what], parent.Grant, want, out.Grant)
			}
		}
		if len(allowed(child)) < len(atMost) {
			narrower++
		}
		if out.Expires.After(parent.Expires) || len(out.Grant.Parents) != 1 || out.Grant.Parents[0] != "parent" {
			t.Fatalf("%+v", out)
		}
	}
	if made < 200 || refused < 200 || narrower < 100 {
		t.Errorf("%d made, %d refused, %d narrower: the test shows little", made, refused, narrower)
	}
}

func TestMint(t *testing.T) {
	clk := newClock()
	v := newTokens(t, Config{Audience: []string{"https://here.example", "https://also.example"}}, newStore(), clk)
	text, made := mint(t, v, wish(clk), nil)
	if made.Grant.Issuer != Issuer || made.Grant.ID == "" || made.Audience[0] != "https://here.example" || !made.IssuedAt.Equal(clk.Now()) {
		t.Errorf("%+v", made)
	}
	head, body, err := Show(string(text) + "\n")
	if err != nil || !strings.Contains(string(head), `"EdDSA"`) || !strings.Contains(string(body), `"weather.*"`) {
		t.Errorf("%s %s %v", head, body, err)
	}
	for name, change := range map[string]func(*Claims){
		"no agent":          func(c *Claims) { c.Grant.Agent = "" },
		"no tool":           func(c *Claims) { c.Grant.Tools = nil },
		"a broken pattern":  func(c *Claims) { c.Grant.Tools = []string{"["} },
		"a broken range":    func(c *Claims) { c.Grant.Version = "newest" },
		"an operation":      func(c *Claims) { c.Grant.Operations = []string{"administer"} },
		"a relative path":   func(c *Claims) { c.Grant.Files = &toolkeep.FileGrant{Paths: []string{"a"}} },
		"a mode":            func(c *Claims) { c.Grant.Files = &toolkeep.FileGrant{Paths: []string{"/a"}, Mode: "x"} },
		"a host":            func(c *Claims) { c.Grant.Network = &toolkeep.NetworkGrant{Hosts: []string{"https://a"}} },
		"a port":            func(c *Claims) { c.Grant.Network = &toolkeep.NetworkGrant{Hosts: []string{"a"}, Ports: []int{0}} },
		"too long":          func(c *Claims) { c.Expires = clk.Now().Add(25 * time.Hour) },
		"expired":           func(c *Claims) { c.Expires = clk.Now() },
		"never valid":       func(c *Claims) { c.NotBefore = c.Expires },
		"more than is read": func(c *Claims) { c.Grant.Tools = make100(101) },
	} {
		c := wish(clk)
		change(&c)
		if _, _, err := v.Mint(t.Context(), c, nil); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A chain ends.
	parent := text
	for i := range MaxDepth + 1 {
		held, err := v.Verify(parent)
		if err != nil {
			t.Fatal(err)
		}
		next, got, failed := v.Mint(t.Context(), Claims{Grant: toolkeep.Grant{Tenant: "acme", Agent: "did:agent:a"}}, held)
		if i == MaxDepth {
			if !toolkeep.IsCode(failed, toolkeep.InvalidParameters) {
				t.Errorf("a chain of %d: %v", i, failed)
			}
			break
		}
		if failed != nil || len(got.Grant.Parents) != i+1 {
			t.Fatal(failed)
		}
		parent = toolkeep.CapabilityToken(next)
	}
	if _, _, err := v.Mint(t.Context(), Claims{Grant: toolkeep.Grant{Tenant: "globex", Agent: "a"}}, tokenOf(made)); !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
		t.Errorf("a child of another tenant: %v", err)
	}
}

// TestVersionOfWhatHasNone: a token for versions shows what has none, such as prompts, by its id alone,
// and calls nothing that has none.
func TestVersionOfWhatHasNone(t *testing.T) {
	token := OfGrant(&toolkeep.Grant{Tools: []string{"a.*"}, Version: "^1"})
	for id, versions := range map[string]map[string]bool{"a.x": {"": true, "1.2.0": true, "2.0.0": false}, "b.x": {"": false, "1.2.0": false}} {
		for version, want := range versions {
			tool := &toolkeep.Tool{ID: id, Version: version, Manifest: &toolkeep.Manifest{SideEffects: "reads"}}
			if got := token.Shows(tool); got != want {
				t.Errorf("%s %q is shown: %v", id, version, got)
			}
			if err := token.Allows(&toolkeep.Principal{}, tool); version == "" && err == nil {
				t.Errorf("a call of %s without a version is allowed", id)
			}
		}
	}
}
