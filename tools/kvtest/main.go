// Command kvtest serves Vault's KV plugin over HTTP for tests that start and end in
// milliseconds: the plugin itself, in one process, behind as much of Vault's API as
// reading and writing secrets takes. There are no policies, and any token does. It is
// no part of what Toolkeep ships.
//
//	kvtest [-listen 127.0.0.1:0] [-mount secret=2] [-mount old=1] …
//
// It prints the address that it listens on as its first line and ends when its
// standard input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/sdk/helper/jsonutil"
	"github.com/hashicorp/vault/sdk/logical"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kvtest:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	s := server{}
	flag.Func("mount", "mount=VERSION of a KV engine; repeatable", s.mount)
	flag.Parse()
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { // the pipe closes when the parent process ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = h.Close()
	}()
	fmt.Println(ln.Addr())
	if err := h.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// server maps paths to mounted engines.
type server map[string]engine

type engine struct {
	version string
	backend logical.Backend
	storage logical.Storage
}

func (s server) mount(text string) error {
	path, version, ok := strings.Cut(text, "=")
	if !ok || path == "" || strings.Contains(path, "/") || version != "1" && version != "2" {
		return errors.New("write mount=1 or mount=2")
	}
	e := engine{version: version, storage: &logical.InmemStorage{}}
	config := &logical.BackendConfig{StorageView: e.storage, System: logical.TestSystemView(), BackendUUID: path, Config: map[string]string{"version": version}}
	var err error
	if e.backend, err = kv.Factory(context.Background(), config); err != nil {
		return err
	}
	s[path] = e
	return e.backend.Initialize(context.Background(), &logical.InitializationRequest{Storage: e.storage})
}

// ServeHTTP implements http.Handler.
func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	switch {
	case !ok:
		refuse(w, http.StatusNotFound)
		return
	case r.Header.Get("X-Vault-Token") == "":
		refuse(w, http.StatusForbidden, "permission denied")
		return
	case path == "auth/token/lookup-self":
		answer(w, http.StatusOK, &logical.Response{Data: map[string]any{"renewable": false, "creation_ttl": 0}})
		return
	}
	if asked, ok := strings.CutPrefix(path, "sys/internal/ui/mounts/"); ok {
		name, _, _ := strings.Cut(asked, "/")
		e, has := s[name]
		if !has {
			refuse(w, http.StatusForbidden, "preflight capability check returned 403")
			return
		}
		answer(w, http.StatusOK, &logical.Response{Data: map[string]any{"path": name + "/", "type": "kv", "options": map[string]string{"version": e.version}}})
		return
	}
	name, rest, _ := strings.Cut(path, "/")
	e, has := s[name]
	if !has {
		refuse(w, http.StatusNotFound, "no handler for route "+path)
		return
	}
	e.serve(w, r, name, rest)
}

// serve passes the request to the plugin as Vault's core does.
func (e engine) serve(w http.ResponseWriter, r *http.Request, mount, path string) {
	req := &logical.Request{ID: "test", Path: path, MountPoint: mount + "/", MountType: "kv", Storage: e.storage, ClientToken: "test", Data: map[string]any{}}
	switch r.Method {
	case http.MethodGet:
		req.Operation = logical.ReadOperation
		for name, values := range r.URL.Query() {
			req.Data[name] = values[0]
		}
		if r.URL.Query().Get("list") == "true" {
			req.Operation = logical.ListOperation
		}
	case "LIST":
		req.Operation = logical.ListOperation
	case http.MethodDelete:
		req.Operation = logical.DeleteOperation
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		if err := jsonutil.DecodeJSONFromReader(io.LimitReader(r.Body, 1<<20), &req.Data); err != nil && !errors.Is(err, io.EOF) {
			refuse(w, http.StatusBadRequest, "failed to parse JSON input: "+err.Error())
			return
		}
		req.Operation = logical.UpdateOperation
		if r.Method == http.MethodPatch {
			req.Operation = logical.PatchOperation
		} else if checked, exists, err := e.backend.HandleExistenceCheck(r.Context(), req); err == nil && checked && !exists {
			req.Operation = logical.CreateOperation
		}
	default:
		refuse(w, http.StatusMethodNotAllowed)
		return
	}
	resp, err := e.backend.HandleRequest(r.Context(), req)
	if status, why := logical.RespondErrorCommon(req, resp, err); why != nil {
		refuse(w, status, why.Error())
		return
	}
	if resp != nil && resp.Data[logical.HTTPStatusCode] != nil { // a complete HTTP response
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(resp.Data[logical.HTTPStatusCode].(int))
		switch body := resp.Data[logical.HTTPRawBody].(type) {
		case string:
			_, _ = io.WriteString(w, body)
		case []byte:
			_, _ = w.Write(body)
		}
		return
	}
	switch {
	case resp != nil:
		answer(w, http.StatusOK, resp)
	case req.Operation == logical.ReadOperation || req.Operation == logical.ListOperation:
		refuse(w, http.StatusNotFound)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func answer(w http.ResponseWriter, status int, resp *logical.Response) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"request_id": "test", "lease_id": "", "renewable": false, "lease_duration": 0,
		"data": resp.Data, "wrap_info": nil, "warnings": resp.Warnings, "auth": nil})
}

func refuse(w http.ResponseWriter, status int, why ...string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": append([]string{}, why...)})
}
