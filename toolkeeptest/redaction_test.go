package toolkeeptest_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/servertest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// hidden is a secret and the part of it that is searched for. The core has only letters
// and digits, so that only escaping every character as \uXXXX or %XX changes it.
type hidden struct {
	name  string
	value string
	cores []string
	ref   string // set by the test
	auth  map[string]any
}

func theSecrets() []*hidden {
	return []*hidden{
		{name: "header", value: `qu"ote\back/slash&amp=Zk41HeaderCore9x%41 +<é>`, cores: []string{"Zk41HeaderCore9x"},
			auth: map[string]any{"type": "api_key", "in": "header", "name": "X-Api-Key"}},
		{name: "query", value: "ключ/päss~wörd&Rm72QueryCore5y=😀 +%", cores: []string{"Rm72QueryCore5y"},
			auth: map[string]any{"type": "api_key", "in": "query", "name": "key"}},
		{name: "cookie", value: "co/okie~1=Vb93CookieCore2z%3D&x", cores: []string{"Vb93CookieCore2z"},
			auth: map[string]any{"type": "api_key", "in": "cookie", "name": "sid"}},
		{name: "bearer", value: "lower-case-tq58bearercore7w-token", cores: []string{"tq58bearercore7w"},
			auth: map[string]any{"type": "bearer"}},
		{name: "basic", value: `bob:pa"ss/Hn64BasicCore3v+wörd`, cores: []string{"Hn64BasicCore3v"},
			auth: map[string]any{"type": "basic"}},
	}
}

// place stores the secrets where the operator would.
func place(t *testing.T, dir string, all []*hidden) (environ []string) {
	t.Helper()
	for i, s := range all {
		switch i % 4 {
		case 0:
			t.Setenv("TOOLKEEP_SECRET_"+strings.ToUpper(s.name), s.value)
			s.ref = "env://TOOLKEEP_SECRET_" + strings.ToUpper(s.name)
		case 1:
			t.Setenv("EVIL_"+strings.ToUpper(s.name), s.value)
			s.ref = "env://EVIL_" + strings.ToUpper(s.name)
		default:
			owner := []string{"_shared", "default"}[i%2]
			path := filepath.Join(dir, "secrets", owner, s.name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(s.value+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.ref = "file://" + path
		}
	}
	return nil
}

func escapeAll(s string) string {
	var b strings.Builder
	for _, c := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

func percentAll(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `%%%02X`, c)
	}
	return b.String()
}

// disguises returns the encodings in which the upstream returns a secret.
func disguises(v string) []string {
	j, _ := json.Marshal(v)
	jj, _ := json.Marshal(string(j))
	parts := []string{v}
	if _, password, ok := strings.Cut(v, ":"); ok {
		parts = append(parts, password)
	}
	var all []string
	for _, p := range parts {
		all = append(all, p, "x"+p+"y", url.QueryEscape(p), url.PathEscape(p), url.QueryEscape(url.QueryEscape(p)),
			hex.EncodeToString([]byte(p)), strings.ToUpper(hex.EncodeToString([]byte(p))),
			"Bearer "+p, "https://u:"+url.QueryEscape(p)+"@example.com/", "a=1&key="+url.QueryEscape(p)+"&b=2")
		for _, pre := range []string{"", "a", "ab", "user:"} {
			raw := []byte(pre + p + "z")
			all = append(all, base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw),
				base64.RawStdEncoding.EncodeToString(raw), url.QueryEscape(base64.StdEncoding.EncodeToString(raw)))
		}
	}
	return append(all, string(j), string(jj))
}

// needles returns the traces by which a secret is found in the output.
func needles(s *hidden) []string {
	var all []string
	for _, core := range s.cores {
		all = append(all, core[:9], core[len(core)-9:]) // half a secret counts, too
		all = append(all, core, strings.ToLower(core), strings.ToUpper(core), escapeAll(core), percentAll(core),
			hex.EncodeToString([]byte(core)), strings.ToUpper(hex.EncodeToString([]byte(core))))
		for shift := range 3 {
			padded := append(make([]byte, shift), core...)
			for len(padded)%3 != 0 {
				padded = padded[:len(padded)-1]
			}
			code := base64.RawStdEncoding.EncodeToString(padded)
			all = append(all, code[(shift*8+5)/6:])
		}
	}
	return all
}

// spill returns a body full of the secret.
func spill(v string) string {
	list := disguises(v)
	tree := map[string]any{"list": list, v: map[string]any{"deep": []any{v, map[string]any{v: 1}}}, "text": strings.Join(list, " | ")}
	raw, _ := json.Marshal(tree)
	return strings.TrimSuffix(string(raw), "}") + `,"escaped":"` + escapeAll(v) + `"}`
}

// hostile responds to /<n>/<mode> with the n-th secret, in the way that mode says.
func hostile(all []*hidden, entered chan<- string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
		var s *hidden
		for _, h := range all {
			if h.name == parts[0] {
				s = h
			}
		}
		if s == nil || len(parts) < 2 {
			http.Error(w, "?", 404)
			return
		}
		v, mode := s.value, parts[1]
		one := strings.ReplaceAll(v, "\n", "")
		w.Header().Set("X-Echo", one)
		w.Header().Set("Set-Cookie", "sid="+url.QueryEscape(v))
		w.Header().Set("WWW-Authenticate", `Basic realm="`+one+`"`)
		w.Header().Set("Retry-After", one)
		var code int
		if _, err := fmt.Sscanf(mode, "status%d", &code); err == nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			io.WriteString(w, spill(v))
			return
		}
		switch mode {
		case "json":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, spill(v))
		case "text", "html", "xml":
			w.Header().Set("Content-Type", "text/"+mode)
			io.WriteString(w, strings.Join(disguises(v), "\n"))
		case "binary":
			w.Header().Set("Content-Type", "application/octet-stream")
			io.WriteString(w, "\x00\xff"+strings.Join(disguises(v), "\x00"))
		case "image":
			w.Header().Set("Content-Type", "image/png")
			io.WriteString(w, "\x89PNG\x00"+v+"\xff")
		case "untyped":
			w.Header()["Content-Type"] = nil
			io.WriteString(w, v)
		case "type":
			w.Header().Set("Content-Type", `text/`+one)
			io.WriteString(w, "hello \xff")
		case "charset":
			w.Header().Set("Content-Type", `text/plain; charset="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(one)+`"`)
			io.WriteString(w, "hello \xff")
		case "longtype":
			w.Header().Set("Content-Type", "application/x-"+strings.Repeat("a", 75)+one+"+json")
			io.WriteString(w, "nothing")
		case "scalar":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, jsonOf(v))
		case "violates":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"n":`+jsonOf(v)+`,`+jsonOf(v)+`:1}`)
		case "broken":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"a":`+jsonOf(v)+`,`+v)
		case "twice":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{`+jsonOf(v)+`:{`+jsonOf(v)+`:1,`+jsonOf(v)+`:2}}`)
		case "cut":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100000")
			io.WriteString(w, spill(v))
		case "big", "bigtext", "bigbinary":
			w.Header().Set("Content-Type", map[string]string{"big": "application/json", "bigtext": "text/plain", "bigbinary": "application/octet-stream"}[mode])
			unit := strings.Repeat("filler ", 60) + v
			if mode == "big" {
				list := make([]string, 50)
				for i := range list {
					list[i] = unit[i:]
				}
				raw, _ := json.Marshal(map[string]any{"list": list, v: v})
				w.Write(raw)
				return
			}
			if mode == "bigbinary" {
				unit = "\x00\xfe" + unit
			}
			io.WriteString(w, strings.Repeat(unit, 50))
		case "gzip":
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, v)
		case "coding":
			w.Header().Set("Content-Encoding", one)
			io.WriteString(w, v)
		case "redirect":
			w.Header().Set("Location", "/"+s.name+"/status404?"+url.QueryEscape(v)+"#"+url.QueryEscape(v))
			w.WriteHeader(302)
		case "redirectaway":
			w.Header().Set("Location", "http://localhost:1/"+url.PathEscape(v)+"?k="+url.QueryEscape(v))
			w.WriteHeader(307)
		case "redirectodd":
			w.Header().Set("Location", "gopher://"+url.QueryEscape(v)+"/"+one)
			w.WriteHeader(302)
		case "redirectbad":
			w.Header().Set("Location", "http://%zz"+one)
			w.WriteHeader(302)
		case "loop":
			w.Header().Set("Location", "/"+s.name+"/loop?"+url.QueryEscape(v))
			w.WriteHeader(302)
		case "line", "noheader", "garbage", "reset":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			switch mode {
			case "line":
				fmt.Fprintf(conn, "HTTP/1.1 500 %s\r\nContent-Length: 0\r\n\r\n", one)
			case "noheader":
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s without a colon\r\n\r\n", strings.ReplaceAll(one, ":", ""))
			case "garbage":
				fmt.Fprintf(conn, "%s\r\n\r\n", one)
			}
		case "slow":
			select {
			case entered <- s.name:
			default:
			}
			<-r.Context().Done()
		case "trickle":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"a":`+jsonOf(v))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
}

func jsonOf(v string) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

var modes = strings.Fields(`json text html xml binary image untyped type charset longtype scalar broken twice cut gzip coding
	redirect redirectaway redirectodd redirectbad loop line noheader garbage reset trickle slow
	status400 status401 status403 status404 status408 status409 status418 status429 status500 status503 status600 status204`)

// httpTool returns a tool that sends one of the secrets to a server.
func httpTool(t testing.TB, id, base string, port int, auth []any, more map[string]any) string {
	m := map[string]any{
		"schema_version": 1, "tool_id": id, "version": "1.0.0", "description": "Asks a hostile server.",
		"parameters_schema": map[string]any{"type": "object", "required": []string{"mode"}, "properties": map[string]any{"mode": map[string]any{"type": "string"}}},
		"side_effects":      "reads", "auth": auth, "retry": map[string]any{"policy": "none"},
		"permissions": map[string]any{"network": []any{map[string]any{"host": "127.0.0.1", "port": port}}},
		"execution": map[string]any{"kind": "http", "timeout_ms": 400, "binding": map[string]any{
			"method": "GET", "server": base, "path": "/{mode}", "parameters": []any{map[string]any{"name": "mode", "in": "path"}}}},
	}
	for k, v := range more {
		m[k] = v
	}
	return jsonText(t, m)
}

// traitor is an executor that leaks secrets in every way an executor can.
type traitor struct{ entered chan struct{} }

func (*traitor) Kind() string                              { return "code" }
func (*traitor) Check(*toolkeep.Manifest) []toolkeep.Fault { return nil }

type odd struct{ Key, Value string }

func (x *traitor) Execute(ctx context.Context, e *toolkeep.Execution) (*toolkeep.Output, error) {
	v := e.Credentials[0].Value
	mode, _ := e.Args["mode"].(string)
	switch mode {
	case "panic":
		panic("the key is " + v)
	case "panicerror":
		panic(fmt.Errorf("wrapped: %w", errors.New(v)))
	case "panicstruct":
		panic(odd{"key", v})
	case "panicmap":
		panic(map[string]any{v: []string{v}})
	case "panicbytes":
		panic([]byte(v))
	case "plainerror":
		return nil, errors.New("dial https://u:" + v + "@host: refused")
	case "details":
		return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "failed with %s", v).
			With("text", v).With("list", []string{v}).With("map", map[string]string{v: v}).With("any", []any{map[string]any{"k": v}}).
			With("raw", json.RawMessage(jsonOf(v))).With("faults", []toolkeep.Fault{{Pointer: "/" + v, Message: v}}).
			With(v, 1).With("bytes", []byte("x"+v)).With("odd", odd{v, v}).With("ptr", &odd{v, v}).Because(errors.New(v))
	case "refusal":
		return nil, toolkeep.NewError(toolkeep.SecretNotFound, "no secret %s", v).With("list", []string{v})
	case "value":
		return &toolkeep.Output{HasValue: true, Value: map[string]any{v: []any{v, json.Number("1")}}}, nil
	case "progress":
		if e.Caller != nil {
			e.Caller.Progress(toolkeep.Progress{Percent: 10, Phase: "phase " + v, Message: "uses " + v})
		}
		x.entered <- struct{}{}
		<-ctx.Done()
		return nil, toolkeep.NewError(toolkeep.Cancelled, "stopped with %s", v).Because(errors.New(v))
	}
	return &toolkeep.Output{HasValue: true}, nil
}

var traitorModes = strings.Fields("panic panicerror panicstruct panicmap panicbytes plainerror details refusal value")

// TestNoSecretComesOut: a hostile upstream and a hostile executor return every secret
// in every way and encoding; the test then searches all output of the system:
// responses, log, metrics, and every file except the operator's.
func TestNoSecretComesOut(t *testing.T) {
	all := theSecrets()
	dir := filepath.Join(t.TempDir(), "data")
	place(t, dir, all)
	entered := make(chan string, 1)
	base, port := upstream(t, hostile(all, entered))
	x := &traitor{entered: make(chan struct{})}
	o := toolkeeptest.Option{Settings: map[string]string{"log.level": "DEBUG", "secrets.env": "EVIL_*", "log.buffer": "64MiB"}}
	o.Options.Executors = []toolkeep.Executor{x}
	k := toolkeeptest.Open(t, dir, o)

	out := &outputs{}
	c := admin(t, k)
	c.seen = out.add

	dead, deadPort := closedPort(t)
	for i, s := range all {
		s.auth["secret"] = s.ref
		auth := []any{s.auth}
		both := maps.Clone(s.auth) // combined with another one
		other := all[(i+1)%len(all)]
		both["settings"] = map[string]any{"also": []any{map[string]any{"type": "api_key", "in": "header", "name": "X-Other", "secret": other.ref}}}
		cutAt := map[string]any{"result": map[string]any{"max_output_bytes": 900}}
		caching := map[string]any{"cache": map[string]any{"policy": "ttl", "ttl_s": 60}}
		strict := map[string]any{"result_schema": map[string]any{"type": "object", "additionalProperties": false,
			"properties": map[string]any{"n": map[string]any{"type": "integer", "enum": []int{1}}}}}
		jq := map[string]any{"result": map[string]any{"transform": `.[] | tonumber | error("x \(.)")`}}
		tls := "https" + strings.TrimPrefix(base, "http")
		k.Publish(
			httpTool(t, "evil."+s.name, base+"/"+s.name, port, auth, nil),
			httpTool(t, "evil.cut-"+s.name, base+"/"+s.name, port, auth, cutAt),
			httpTool(t, "evil.cached-"+s.name, base+"/"+s.name, port, auth, caching),
			httpTool(t, "evil.strict-"+s.name, base+"/"+s.name, port, auth, strict),
			httpTool(t, "evil.jq-"+s.name, base+"/"+s.name, port, auth, jq),
			httpTool(t, "evil.both-"+s.name, base+"/"+s.name, port, []any{both}, nil),
			httpTool(t, "evil.dead-"+s.name, dead, deadPort, auth, nil),
			httpTool(t, "evil.tls-"+s.name, tls, port, auth, nil),
			httpTool(t, "evil.forbidden-"+s.name, base, port, auth, map[string]any{"permissions": map[string]any{}}),
			httpTool(t, "evil.code-"+s.name, base, port, auth, map[string]any{"execution": map[string]any{"kind": "code"}}),
			httpTool(t, "evil.codecached-"+s.name, base, port, auth, map[string]any{"execution": map[string]any{"kind": "code"},
				"cache": map[string]any{"policy": "ttl"}}),
		)
	}
	secretsOf := func(n int) string { return all[n%len(all)].name }

	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			for _, m := range modes {
				c.tell("evil."+s.name, m)
			}
			for _, m := range []string{"big", "bigtext", "bigbinary", "json", "text", "status500"} {
				a := c.tell("evil.cut-"+s.name, m)
				c.fetchBlobs(a)
			}
			for _, tool := range []string{"dead", "tls", "forbidden"} {
				c.tell("evil."+tool+"-"+s.name, "json")
			}
			for _, m := range []string{"violates", "scalar", "json"} {
				c.tell("evil.strict-"+s.name, m)
				c.tell("evil.jq-"+s.name, m)
			}
			for range 2 {
				c.tell("evil.cached-"+s.name, "json")
				c.tell("evil.cached-"+s.name, "status500")
			}
			for _, m := range traitorModes {
				c.tell("evil.code-"+s.name, m)
				c.tell("evil.codecached-"+s.name, m)
			}
			c.tell("evil."+s.name, "json", `"dry_run":true`)
			c.tell("evil.both-"+s.name, "json")
			c.tell("evil.both-"+s.name, "status500")
		})
	}
	wg.Wait()

	// Waiting calls, replayed calls and cancelled calls.
	for i, m := range []string{"json", "status500", "status404", "twice", "cut", "slow", "text", "charset"} {
		id := c.tell("evil."+secretsOf(i), m, async).id(t)
		c.ended(id)
		for range 2 {
			c.tell("evil."+secretsOf(i+1), m, keyed(fmt.Sprintf("key-%d", i)))
		}
	}
	for i, m := range traitorModes {
		c.ended(c.tell("evil.code-"+secretsOf(i), m, async).id(t))
	}
	for _, s := range all {
		id := c.tell("evil.code-"+s.name, "progress", async).id(t)
		<-x.entered
		c.follow(id, func(e event) bool { return strings.Contains(e.data, "progress_percent") || e.name == "result" })
		c.do("POST", "/api/v1/invocations/"+id+"/cancel", jsonText(t, map[string]any{"reason": "because of " + s.value}))
		c.ended(id)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-entered:
		case <-ctx.Done(): // the call ended before it got there
		}
		cancel()
	}()
	if a, err := c.try(ctx, "POST", "/api/v1/tools/invoke", envelope("evil.header", `{"mode":"slow"}`, `"timeout_seconds":1`)); err == nil && a.status < 400 {
		t.Logf("not cancelled: %s", a)
	}
	cancel()

	// Keys with a typo, and keys in the wrong places.
	for _, key := range []string{c.key + "x", c.key[:len(c.key)-1], strings.ToUpper(c.key)} {
		wrong := *c
		wrong.key = key
		wrong.do("GET", "/api/v1/tools", "").want(t, 401)
		wrong.do("POST", "/api/v1/tools/invoke", envelope("std.echo", "{}")).want(t, 401)
	}
	c.do("GET", "/api/v1/tools?key="+c.key, "").want(t, 400)
	c.do("GET", "/api/v1/tools", "", "Authorization", "Basic "+c.key).want(t, 401)

	c.do("GET", "/api/v1/invocations?page_size=200", "")
	c.do("GET", "/api/v1/tools?page_size=200", "")
	c.do("GET", "/api/v1/tools/evil.query", "")
	c.do("GET", "/health/ready", "")
	c.do("GET", "/openapi.json", "")
	metrics := *c
	metrics.url, metrics.key = strings.TrimSuffix(k.MetricsURL(), "/metrics"), ""
	if a := metrics.do("GET", "/metrics", ""); !strings.Contains(a.body, "tool_invocation_total") {
		t.Fatalf("no metrics: %s", a)
	}
	server, err := os.ReadFile(filepath.Join(dir, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	out.add(string(server))
	for name, content := range files(t, dir) { // including the current write-ahead log
		out.file("while it runs: "+name, content)
	}
	k.Close()
	for name, content := range files(t, dir) {
		out.file(name, content)
	}
	dump(t, filepath.Join(dir, "toolkeep.db"), out)
	out.named("the log", k.Log())
	if !strings.Contains(k.Log(), "panic in a call") {
		t.Error("no panic in the log: the search finds nothing because nothing was written")
	}
	if n := strings.Count(k.Log(), "[REDACTED]"); n < 10 {
		t.Errorf("%d places were redacted in the log, want some", n)
	}
	out.search(t, all, k.AdminKey)
}

// TestArgumentsAreNotKept searches for callers' arguments: they are recorded as hash
// and size, those of waiting calls are sealed until the call ends, and faults are
// reported without the value.
func TestArgumentsAreNotKept(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	const marker = "Jd83ArgumentMarker6p"
	c := admin(t, k)
	strict := strings.Replace(gated("gate.strict", "1.0.0", writes), `{"name":{"type":"string"}}`, `{"name":{"type":"string"},"e":{"enum":["a"]},`+
		`"c":{"const":1},"p":{"type":"string","pattern":"^x$"},"l":{"type":"string","maxLength":3},"n":{"type":"integer"},"f":{"type":"string","format":"date-time"}}`, 1)
	k.Publish(strict)
	c.call("gate.read", named("busy"), async).want(t, 202)
	g.awaits(t, "busy")
	var ids []string
	for i := range 3 {
		ids = append(ids, c.call("gate.write", named(fmt.Sprint(marker, i)), async).want(t, 202).id(t))
	}
	for _, args := range []string{`{"e":"%s"}`, `{"c":"%s"}`, `{"p":"%s"}`, `{"l":"%s"}`, `{"n":"%s"}`, `{"f":"%s"}`, `{"name":["%s"]}`,
		`{"e":"%[1]s","c":{"%[1]s":["%[1]s"]},"n":"%[1]s"}`} {
		c.call("gate.strict", fmt.Sprintf(args, marker)).want(t, 400)
		c.call("gate.strict", fmt.Sprintf(args, marker), async).want(t, 400)
		c.call("gate.strict", fmt.Sprintf(args, marker), `"dry_run":true`)
	}
	c.call("std.note_list", fmt.Sprintf(`{"notebook":%q}`, strings.ToLower(marker)))
	c.call("std.math", fmt.Sprintf(`{"expression":%q}`, marker))
	out := &outputs{}
	for name, content := range files(t, k.Dir) {
		out.named("while they wait: "+name, string(content))
	}
	for _, id := range ids[1:] { // the result of the first stays, and contains the argument
		c.do("POST", "/api/v1/invocations/"+id+"/cancel", "{}").want(t, 200)
	}
	g.openAll()
	for _, id := range ids {
		c.ended(id)
		row, err := k.Store().Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "default", ID: id})
		if err != nil || len(row.SealedArgs) != 0 {
			t.Errorf("the arguments of %s are still there (%v)", id, err)
		}
	}
	k.Close()
	out.named("the log", k.Log())
	for _, o := range out.all {
		if i := strings.Index(o.text, marker); i >= 0 {
			t.Errorf("%s: …%q", o.where, o.text[max(0, i-200):min(len(o.text), i+60)])
		}
	}
}

// TestSensitiveFieldsAreNotQuoted: fields that a manifest hides from the result must
// not appear in messages about the result's faults.
func TestSensitiveFieldsAreNotQuoted(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	const marker = "Ws27SensitiveMarker4q"
	schema := `"result_schema":{"type":"object","properties":{"ssn":{"type":"string","enum":["none"]}}}`
	for name, result := range map[string]string{"t.strict": `{"sensitive_fields":["/ssn"]}`, "t.lax": `{"sensitive_fields":["/ssn"],"strict":false}`,
		"t.jq": `{"sensitive_fields":["/ssn"],"transform":".ssn | tonumber"}`} {
		k.Publish(toolkeeptest.Manifest(name, "1.0.0", "echo", reads, schema, `"result":`+result))
		a := admin(t, k).call(name, fmt.Sprintf(`{"ssn":%q}`, marker), keyed("k-"+name))
		if strings.Contains(a.body, marker[:8]) || a.status != 200 {
			t.Errorf("%s: %s", name, a)
		}
	}
	k.Close()
	for name, content := range files(t, k.Dir) {
		if strings.Contains(string(content), marker) {
			t.Errorf("it is in %s", name)
		}
	}
	if strings.Contains(k.Log(), marker) {
		t.Error("it is in the log")
	}
}

// tell makes a call and ignores its outcome, except for a crash of the server.
func (c *client) tell(tool, mode string, more ...string) answer {
	c.t.Helper()
	a := c.call(tool, jsonText(c.t, map[string]any{"mode": mode}), more...)
	if a.status >= 500 && a.text(c.t, "code") == string(toolkeep.InternalError) &&
		!strings.HasPrefix(mode, "panic") && mode != "plainerror" {
		c.t.Errorf("%s %s: %s", tool, mode, a)
	}
	return a
}

// fetchBlobs reads the attachments of a result.
func (c *client) fetchBlobs(a answer) {
	c.t.Helper()
	list, _ := a.at(c.t, "execution_metadata", "attachments").([]any)
	for _, item := range list {
		at := item.(map[string]any)["url"].(string)
		c.do("GET", at, "").want(c.t, 200)
	}
}

func closedPort(t *testing.T) (string, int) {
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", port), port
}

// outputs holds all output of the system, by place.
type outputs struct {
	mu  sync.Mutex
	all []output
}

type output struct{ where, text string }

func (o *outputs) add(s string) { o.named("an answer", s) }

func (o *outputs) named(where, s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, output{where, s})
}

// file adds a file unless the operator put a secret there.
func (o *outputs) file(name string, content []byte) {
	if strings.HasPrefix(strings.TrimPrefix(name, "while it runs: "), "secrets/") || strings.HasSuffix(name, "admin.key") {
		return
	}
	o.named(name, string(content))
}

func (o *outputs) search(t *testing.T, all []*hidden, adminKey string) {
	t.Helper()
	if len(o.all) < 100 {
		t.Fatalf("only %d outputs", len(o.all))
	}
	secretPart := adminKey[len("tk_")+13:]
	found := map[string]int{}
	for _, out := range o.all {
		if strings.Contains(out.text, secretPart) {
			t.Errorf("the admin key is in %s", out.where)
		}
		for _, s := range all {
			for _, n := range needles(s) {
				i := strings.Index(out.text, n)
				if i < 0 {
					continue
				}
				what := s.name + " in " + out.where
				if found[what]++; found[what] == 1 {
					from, to := max(0, i-300), min(len(out.text), i+100)
					t.Errorf("%s, as %q: …%q…\nbegins %q", what, n, out.text[from:to], out.text[:min(len(out.text), 200)])
				}
			}
		}
	}
	names := make([]string, 0, len(found))
	for n := range found {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		t.Logf("%d times %s", found[n], n)
	}
}

// dump adds every value of the database: in the file a value may span pages.
func dump(t *testing.T, path string, out *outputs) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var tables []string
	rows, err := db.Query(`SELECT name FROM sqlite_master WHERE type = 'table'`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var n string
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, n)
	}
	rows.Close()
	if len(tables) < 4 {
		t.Fatalf("tables: %v", tables)
	}
	for _, table := range tables {
		rows, err := db.Query(`SELECT * FROM "` + table + `"`)
		if err != nil {
			t.Fatal(err)
		}
		columns, _ := rows.Columns()
		for rows.Next() {
			values := make([]any, len(columns))
			into := make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			for i, v := range values {
				switch v := v.(type) {
				case string:
					out.named("table "+table+"."+columns[i], v)
				case []byte:
					out.named("table "+table+"."+columns[i], string(v))
				}
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		rows.Close()
	}
}
