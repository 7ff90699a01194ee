package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	_ "modernc.org/sqlite" // the same driver as the executor's

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/builtin"
	"github.com/toolkeep/toolkeep/executor/filetool"
	"github.com/toolkeep/toolkeep/executor/grpctool"
	"github.com/toolkeep/toolkeep/executor/httptool"
	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// pair is one request, made by an executor and directly.
type pair struct {
	name     string
	executor toolkeep.Executor
	manifest *toolkeep.Manifest
	args     string
	direct   func(ctx context.Context) error
	close    func()
}

// executors measures what an executor adds to the request that it makes: CPU of
// this process per call, the executor and the direct request by turns, one after
// the other. Servers are processes of their own and not counted; SQLite is.
func executors(b *bench) (part, error) {
	p := part{set: "Set: one caller; CPU of the caller's side alone, but for SQLite, which runs within it. Direct is the same request by net/http, " +
		"generated grpc-go, database/sql, os and crypto, its answer read whole."}
	for _, make := range []func(*bench) (*pair, error){overHTTP, overGRPC, overSQL, overFiles, overBuiltin} {
		pr, err := make(b)
		if err != nil {
			return part{}, err
		}
		row, err := pr.measure(b.d)
		pr.close()
		if err != nil {
			return part{}, fmt.Errorf("%s: %w", pr.name, err)
		}
		p.rows = append(p.rows, row)
	}
	return p, nil
}

// turn is how long one side is measured before the other's turn.
const turn = 100 * time.Millisecond

func (p *pair) measure(d time.Duration) ([]string, error) {
	if faults := p.executor.Check(p.manifest); len(faults) > 0 {
		return nil, fmt.Errorf("the manifest has faults: %+v", faults)
	}
	args, err := canon.ParseObject([]byte(p.args), canon.Limits{})
	if err != nil {
		return nil, err
	}
	tool := &toolkeep.Tool{ID: p.manifest.ToolID, Version: p.manifest.Version, Manifest: p.manifest, Digest: "sha256:" + hex.EncodeToString(make([]byte, 32))}
	principal := &toolkeep.Principal{Subject: "bench", Tenant: "default"}
	ctx := context.Background()
	through := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		out, err := p.executor.Execute(ctx, &toolkeep.Execution{Tool: tool, Args: args, Principal: principal, InvocationID: floorID, Attempt: 1, MaxBytes: 10 << 20})
		if err != nil {
			return errors.Join(err, toolkeep.AsError(err).Cause)
		}
		if !out.HasValue && len(out.Body) == 0 {
			return errors.New("no answer")
		}
		return nil
	}
	sides := []*side{{run: p.direct}, {run: through}}
	for _, s := range sides { // connections, caches
		if err := s.take(ctx, turn); err != nil {
			return nil, err
		}
		*s = side{run: s.run}
	}
	for end := time.Now().Add(2 * d); time.Now().Before(end); {
		for _, s := range sides {
			if err := s.take(ctx, turn); err != nil {
				return nil, err
			}
		}
	}
	direct, via := sides[0], sides[1]
	return []string{p.name, us1(direct.cpuPerCall()), us1(via.cpuPerCall()), us1(via.cpuPerCall() - direct.cpuPerCall()),
		us1(direct.timePerCall()), us1(via.timePerCall())}, nil
}

func us1(v float64) string { return fmt.Sprintf("%.1f µs", v) }

// side is one way of making the request, with what it used.
type side struct {
	run     func(context.Context) error
	calls   int
	cpu, in time.Duration
}

func (s *side) take(ctx context.Context, d time.Duration) error {
	began, used := time.Now(), ownCPU()
	for time.Since(began) < d {
		for range 20 {
			if err := s.run(ctx); err != nil {
				return err
			}
			s.calls++
		}
	}
	s.cpu += ownCPU() - used
	s.in += time.Since(began)
	return nil
}

func (s *side) cpuPerCall() float64  { return float64(s.cpu.Microseconds()) / float64(s.calls) }
func (s *side) timePerCall() float64 { return float64(s.in.Microseconds()) / float64(s.calls) }

// ownCPU returns this process's CPU time, user and system.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bound is a manifest around a binding.
func bound(kind, effects string, binding map[string]any, edit ...func(m *toolkeep.Manifest)) *toolkeep.Manifest {
	m := &toolkeep.Manifest{
		SchemaVersion: 1, ToolID: "bench." + kind, Version: "1.0.0", Description: "A tool of the benchmark.", ParametersSchema: []byte(`{"type":"object"}`),
		SideEffects: effects, Idempotent: true, Execution: toolkeep.ExecutionSpec{Kind: kind, Binding: canon.Append(nil, binding)},
	}
	for _, f := range edit {
		f(m)
	}
	return m
}

// overHTTP posts about 600 bytes of JSON to the floor, which gives them back.
func overHTTP(b *bench) (*pair, error) {
	host, port, err := net.SplitHostPort(b.floor.addr)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	e := httptool.New(httptool.Config{})
	body := echoBody()
	args, err := canon.ParseObject(body, canon.Limits{})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	url := "http://" + b.floor.addr + "/api/v1/tools/invoke"
	return &pair{
		name: "`http`: POST of 600 bytes of JSON, as many back", executor: e, args: string(body),
		manifest: bound("http", "reads", map[string]any{"method": "POST", "server": "http://" + b.floor.addr, "path": "/api/v1/tools/invoke",
			"body": map[string]any{"all": true, "content_type": "application/json"}},
			func(m *toolkeep.Manifest) {
				m.Permissions = &toolkeep.Permissions{Network: []toolkeep.HostPort{{Host: host, Port: number}}}
			}),
		direct: func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(canon.Append(nil, args)))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			raw, err := io.ReadAll(res.Body)
			if err == nil && (res.StatusCode != http.StatusOK || len(raw) == 0) {
				err = fmt.Errorf("status %d", res.StatusCode)
			}
			return err
		},
		close: func() { e.Close(); client.CloseIdleConnections() },
	}, nil
}

// overGRPC sends the call of echoBody to the gRPC floor, which gives its inputs back.
func overGRPC(b *bench) (*pair, error) {
	host, port, err := net.SplitHostPort(b.floor.grpc)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	req, err := echoRequest()
	if err != nil {
		return nil, err
	}
	args, err := protojson.Marshal(req)
	if err != nil {
		return nil, err
	}
	method := l03v1.ToolExecution_ServiceDesc
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(req.ProtoReflect().Descriptor().ParentFile())}}
	descriptors, err := proto.Marshal(set)
	if err != nil {
		return nil, err
	}
	conn, err := dialGRPC(b.floor)
	if err != nil {
		return nil, err
	}
	client := l03v1.NewToolExecutionClient(conn)
	e := grpctool.New(grpctool.Config{})
	return &pair{
		name: "`grpc`: a message of 600 bytes, as many back", executor: e, args: string(args),
		manifest: bound("grpc", "reads", map[string]any{"target": b.floor.grpc, "plaintext": true, "method": method.ServiceName + "/InvokeTool",
			"descriptors": base64.StdEncoding.EncodeToString(descriptors)},
			func(m *toolkeep.Manifest) {
				m.Permissions = &toolkeep.Permissions{Network: []toolkeep.HostPort{{Host: host, Port: number}}}
			}),
		direct: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			res, err := client.InvokeTool(ctx, req)
			if err == nil && len(res.GetOutputs()) == 0 {
				err = errors.New("no answer")
			}
			return err
		},
		close: func() { e.Close(); conn.Close() },
	}, nil
}

// overSQL reads one row of SQLite by its key.
func overSQL(b *bench) (*pair, error) {
	dir := filepath.Join(b.dir, "sql")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "data.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	for _, s := range []string{"PRAGMA journal_mode=WAL", "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, note TEXT, total REAL)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1000) INSERT INTO orders SELECT i, 'customer ' || i, 'a note of some length', i*1.5 FROM n"} {
		if _, err := db.Exec(s); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	const query = "SELECT id, customer, note, total FROM orders WHERE id = ?"
	stmt, err := db.Prepare(query)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	e := sqltool.New(sqltool.Config{SQLiteRoots: []string{dir}})
	return &pair{
		name: "`sql`: one row of SQLite by its key", executor: e, args: `{"id":500}`,
		manifest: bound("sql", "reads", map[string]any{"database": "sqlite", "connection": map[string]any{"file": file}, "statement": query,
			"parameters": []any{map[string]any{"name": "id", "type": "integer"}}},
			func(m *toolkeep.Manifest) { m.Permissions = folder(file) }),
		direct: func(ctx context.Context) error {
			var id int64
			var customer, note string
			var total float64
			return stmt.QueryRowContext(ctx, 500).Scan(&id, &customer, &note, &total)
		},
		close: func() { e.Close(); stmt.Close(); db.Close() },
	}, nil
}

// folder allows a tool to read below a path.
func folder(path string) *toolkeep.Permissions {
	p := new(toolkeep.Permissions)
	if err := json.Unmarshal(canon.Append(nil, map[string]any{"filesystem": []any{map[string]any{"path": path, "mode": "ro"}}}), p); err != nil {
		panic(err) // the text is made here
	}
	return p
}

// overFiles reads a small text file.
func overFiles(b *bench) (*pair, error) {
	dir := filepath.Join(b.dir, "files")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte(strings.Repeat("a line of text\n", 70)), 0o644); err != nil {
		return nil, err
	}
	e, err := filetool.New(filetool.Config{Roots: []filetool.Root{{Path: dir}}})
	if err != nil {
		return nil, err
	}
	return &pair{
		name: "`file`: a text of 1 KB", executor: e, args: `{"path":"note.txt"}`,
		manifest: bound("file", "reads", map[string]any{"operation": "read", "root": dir, "arguments": map[string]any{"path": "path"}},
			func(m *toolkeep.Manifest) {
				m.Permissions = folder(dir)
				m.ParametersSchema = []byte(`{"type":"object","properties":{"path":{"type":"string"}}}`)
			}),
		direct: func(context.Context) error {
			root, err := os.OpenRoot(dir)
			if err != nil {
				return err
			}
			defer root.Close()
			raw, err := root.ReadFile("note.txt")
			if err == nil && len(raw) == 0 {
				err = errors.New("the file is empty")
			}
			return err
		},
		close: func() {},
	}, nil
}

// overBuiltin hashes a text.
func overBuiltin(*bench) (*pair, error) {
	text := strings.Repeat("The quick brown fox jumps. ", 15)
	for _, raw := range builtin.Manifests() {
		m := new(toolkeep.Manifest)
		if err := json.Unmarshal(raw, m); err != nil {
			return nil, err
		}
		if m.ToolID != "std.hash" {
			continue
		}
		return &pair{
			name: "`builtin`: SHA-256 of 400 bytes", executor: builtin.New(builtin.Config{}), manifest: m,
			args: string(canon.Append(nil, map[string]any{"text": text, "algorithm": "sha256"})),
			direct: func(context.Context) error {
				sum := sha256.Sum256([]byte(text))
				if hex.EncodeToString(sum[:]) == "" {
					return errors.New("no digest")
				}
				return nil
			},
			close: func() {},
		}, nil
	}
	return nil, errors.New("there is no tool std.hash")
}
