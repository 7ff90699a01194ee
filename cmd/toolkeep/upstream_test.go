package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/toolkeep/toolkeep/datadir"
)

// service is one for tools to call:
//
//	/echo      what was sent, the credential included
//	/guarded   401 unless X-API-Key is what upstreamKey says
//	/hang      no answer until the caller gives up
//	/big?n=    a text of n bytes
//	/counts    how many requests hang, and how many callers gave up
type service struct {
	hanging, givenUp, calls atomic.Int64
}

const upstreamKey = "open-sesame-4711-of-the-forty"

func (u *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/counts" {
		u.calls.Add(1)
	}
	switch r.URL.Path {
	case "/echo":
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		answerJSON(w, map[string]any{"method": r.Method, "query": r.URL.RawQuery, "body": string(body), "key": r.Header.Get("X-API-Key"),
			"encoded": base64.StdEncoding.EncodeToString([]byte(r.Header.Get("X-API-Key")))})
	case "/guarded":
		if r.Header.Get("X-API-Key") != upstreamKey {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		answerJSON(w, map[string]any{"open": true})
	case "/hang":
		u.hanging.Add(1)
		<-r.Context().Done()
		u.hanging.Add(-1)
		u.givenUp.Add(1)
	case "/big":
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		answerJSON(w, map[string]any{"text": strings.Repeat("x", n)})
	case "/counts":
		answerJSON(w, map[string]any{"hanging": u.hanging.Load(), "given_up": u.givenUp.Load(), "calls": u.calls.Load()})
	default:
		http.NotFound(w, r)
	}
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func cmdUpstream(ts *testscript.TestScript, _ bool, _ []string) {
	s := httptest.NewServer(new(service))
	ts.Defer(func() {
		s.CloseClientConnections()
		s.Close()
	})
	ts.Setenv("UPSTREAM", s.URL)
	ts.Setenv("UPSTREAM_KEY", upstreamKey)
}

func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND…|GET URL")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var got string
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if args[1] == "GET" {
			got = get(ts, args[2])
		} else {
			ts.Check(ts.Exec(args[1], args[2:]...))
			got = ts.ReadFile("stdout")
		}
		if want.MatchString(got) {
			return
		}
	}
	ts.Fatalf("%s never matched; the last was:\n%s", args[0], got)
}

func get(ts *testscript.TestScript, address string) string {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	ts.Check(err)
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	ts.Check(err)
	return string(raw)
}

func cmdCapture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	found := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) != 2 {
		ts.Fatalf("the last standard output has nothing like %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// cmdNowhere searches files byte by byte, including databases.
func cmdNowhere(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: nowhere TEXT FILE…")
	}
	forms := []string{args[0]}
	// Base64 of a text inside another has one of three alignments.
	for shift := range 3 {
		enc := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00", shift) + args[0]))
		forms = append(forms, enc[4*((shift+2)/3):len(enc)-4])
	}
	for _, root := range args[1:] {
		ts.Check(filepath.WalkDir(ts.MkAbs(root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, form := range forms {
				if bytes.Contains(raw, []byte(form)) {
					ts.Fatalf("%s holds %q", path, form)
				}
			}
			return nil
		}))
	}
}

func cmdBefore(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: before TIME TIME")
	}
	first, err := time.Parse(time.RFC3339Nano, args[0])
	ts.Check(err)
	second, err := time.Parse(time.RFC3339Nano, args[1])
	ts.Check(err)
	if !first.Before(second) {
		ts.Fatalf("%s is not before %s", args[0], args[1])
	}
}

func cmdMetrics(ts *testscript.TestScript, _ bool, _ []string) {
	info, err := datadir.ReadServerFile(ts.Getenv("TOOLKEEP_DATA"))
	ts.Check(err)
	_, err = io.WriteString(ts.Stdout(), get(ts, info.Metrics))
	ts.Check(err)
}

func cmdAddress(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: address NAME")
	}
	info, err := datadir.ReadServerFile(ts.Getenv("TOOLKEEP_DATA"))
	ts.Check(err)
	ts.Setenv(args[0], strings.TrimPrefix(info.URL, "http://"))
}
