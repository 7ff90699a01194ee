package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

// pipes returns a connection and the far ends of its pipes.
func pipes(t *testing.T, c transport.LinesConfig) (conn *transport.LinesConn, theirs *io.PipeWriter, ours *bufio.Reader, end *io.PipeReader) {
	t.Helper()
	r, w := io.Pipe()
	end, out := io.Pipe()
	conn = transport.Lines(r, out, c)
	closing(t, conn)
	return conn, w, bufio.NewReader(end), end
}

func TestLinesBothWays(t *testing.T) {
	conn, theirs, ours, _ := pipes(t, transport.LinesConfig{})
	go func() {
		_, _ = io.WriteString(theirs, "\n  \r\n"+`{"jsonrpc":"2.0","id":1,"result":{"a":1.0}}`+"\r\n"+
			`[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":"2","method":"b"}]`+"\n"+
			`{"jsonrpc":"2.0","id":3,"result":{}}`)
		_ = theirs.Close()
	}()
	for _, want := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"a":1.0}}`, `{"jsonrpc":"2.0","method":"a"}`,
		`{"jsonrpc":"2.0","id":"2","method":"b"}`, `{"jsonrpc":"2.0","id":3,"result":{}}`,
	} {
		if m := read(t, conn); string(m.Bytes()) != want {
			t.Errorf("got %s, want %s", m.Bytes(), want)
		}
	}
	if _, err := conn.Read(within(t)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- conn.Write(within(t), request(7, "ping", "{\n}")) }()
	if line, err := ours.ReadString('\n'); line != `{"jsonrpc":"2.0","id":7,"method":"ping","params":{}}`+"\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLinesJunk(t *testing.T) {
	var heads []string
	conn, theirs, _, _ := pipes(t, transport.LinesConfig{MaxMessage: 2000, OnJunk: func(head []byte) { heads = append(heads, string(head)) }}.WithMaxJunk(3))
	pad := strings.Repeat("x", 3000)
	go func() {
		for _, line := range []string{
			"Server running on stdio", `{"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","method":"a"}`,
			"one", "two", pad, `{"jsonrpc":"2.0","method":"b"}`,
			"1", "2", "3", "4",
		} {
			if _, err := io.WriteString(theirs, line+"\n"); err != nil {
				return
			}
		}
	}()
	for _, want := range []string{"a", "b"} {
		if m := read(t, conn); m.Method != want {
			t.Errorf("%s, want %s", m.Bytes(), want)
		}
	}
	if _, err := conn.Read(within(t)); !errors.Is(err, transport.ErrJunk) {
		t.Errorf("after the fourth junk line in a row: %v", err)
	}
	if got := fmt.Sprintln(len(heads), heads[0], heads[1], len(heads[4]), heads[5:]); got != `9 Server running on stdio {"jsonrpc":"2.0"} 200 [1 2 3 4]`+"\n" {
		t.Error(got)
	}
}

// TestLinesAnswers: each line that is no message is answered, with the request's id where one can be read.
func TestLinesAnswers(t *testing.T) {
	conn, theirs, ours, _ := pipes(t, transport.LinesConfig{MaxMessage: 2000, Answer: true})
	for line, want := range map[string]string{
		"{broken":                             `"id":null,"error":{"code":-32700,`,
		"[]":                                  `"id":null,"error":{"code":-32600,`,
		"5":                                   `"id":null,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":4}`:            `"id":4,"error":{"code":-32600,`,
		`{"id":6,"method":"ping"}`:            `"id":6,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":7,"method":5}`: `"id":7,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":8,"method":"ping","params":3}`:                                       `"id":8,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`:                                                 `"id":null,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":9,"id":9,"method":"ping"}`:                                           `"id":null,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":10,"method":"ping","params":{"a":1,"a":2}}`:                          `"id":null,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":11,"method":"a","params":{"x":"` + strings.Repeat("x", 3000) + `"}}`: `"id":11,"error":{"code":-32600,`,
	} {
		if _, err := io.WriteString(theirs, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := ours.ReadString('\n'); err != nil || !strings.Contains(got, want) {
			t.Errorf("%.60s: answered %q, %v; want %s", line, got, err, want)
		}
	}
	go func() { // a broken response is no request: it gets no answer
		_, _ = io.WriteString(theirs, `{"jsonrpc":"2.0","id":3,"result":{}`+"\n")
	}()
	if m := read(t, conn); m.Lost == nil {
		t.Errorf("read %s", m.Bytes())
	}
}

func TestLinesTooLarge(t *testing.T) {
	pad := strings.Repeat("x", 100_000)
	for _, c := range []struct{ name, line, lost string }{
		{"id first", `{"jsonrpc":"2.0","id":5,"result":{"text":"` + pad + `"}}`, "5"},
		{"id last", `{"result":{"text":"` + pad + `"},"jsonrpc":"2.0","id":"q"}`, `"q"`},
		{"id last with space", `{"result":{"text":"` + pad + `"}, "jsonrpc":"2.0" , "id" : 12 }`, `12`},
		{"an inner id", `{"result":{"text":"` + pad + `","id":6}}`, ""},
		{"a request", `{"jsonrpc":"2.0","id":5,"method":"x","params":{"text":"` + pad + `"}}`, ""},
		{"a request with its method last", `{"jsonrpc":"2.0","id":5,"params":{"text":"` + pad + `"},"method":"x"}`, ""},
		{"a request with its id last", `{"params":{"text":"` + pad + `"},"method":"x","id":5}`, ""},
		{"an id in a string", `{"result":{"text":"` + pad + `,\"id\":5}"}}`, ""},
		{"no JSON", pad, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, theirs, _, _ := pipes(t, transport.LinesConfig{MaxMessage: 30_000})
			go func() { _, _ = io.WriteString(theirs, c.line+"\n"+`{"jsonrpc":"2.0","method":"next"}`+"\n") }()
			m := read(t, conn)
			if c.lost != "" {
				if string(m.ID) != c.lost || !errors.Is(m.Lost, mcp.ErrTooLarge) || m.Err == nil || m.Err.Code != mcp.CodeLost || !m.IsResponse() {
					t.Errorf("%s, lost %v", m.Bytes(), m.Lost)
				}
				m = read(t, conn)
			}
			if m.Method != "next" {
				t.Errorf("%s", m.Bytes())
			}
		})
	}
	t.Run("no end", func(t *testing.T) {
		conn, theirs, _, _ := pipes(t, transport.LinesConfig{MaxMessage: 20_000})
		go func() { _, _ = io.WriteString(theirs, pad+pad) }()
		if _, err := conn.Read(within(t)); !errors.Is(err, transport.ErrJunk) {
			t.Error(err)
		}
	})
	t.Run("just fits", func(t *testing.T) {
		line := `{"jsonrpc":"2.0","method":"fits"}`
		conn, theirs, _, _ := pipes(t, transport.LinesConfig{MaxMessage: int64(len(line))})
		go func() { _, _ = io.WriteString(theirs, line+"\r\n"+line+" \n"+line+"\n") }()
		for range 3 {
			if m := read(t, conn); m.Method != "fits" {
				t.Errorf("%s", m.Bytes())
			}
		}
	})
}

// TestLinesBrokenAnswer: an unreadable response fails its request, and a line that may
// be a request of the peer is not taken for a response.
func TestLinesBrokenAnswer(t *testing.T) {
	for _, c := range []struct{ name, line, lost string }{
		{"no UTF-8", `{"jsonrpc":"2.0","id":5,"result":{"text":"` + "\xff" + `"}}`, "5"},
		{"a name twice", `{"jsonrpc":"2.0","id":5,"result":{"a":1,"a":2}}`, "5"},
		{"too deep", `{"jsonrpc":"2.0","id":5,"result":` + strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300) + `}`, "5"},
		{"result and error", `{"jsonrpc":"2.0","id":"q","result":{},"error":{"code":1,"message":"m"}}`, `"q"`},
		{"neither", `{"id":5,"jsonrpc":"2.0"}`, ""},
		{"no object", `{"jsonrpc":"2.0","id":5,"result":[1]}`, "5"},
		{"an error that is text", `{"jsonrpc":"2.0","id":5,"error":"bad"}`, "5"},
		{"another version, id last", `{"jsonrpc":"1.0","result":{},"id":5}`, "5"},
		{"it breaks off", `{"jsonrpc":"2.0","id":5,"result":{"te`, "5"},
		{"it breaks off early", `{"jsonrpc":"2.0","id":5,"meth`, ""},
		{"it breaks off behind the id", `{"jsonrpc":"2.0","id":5`, ""},
		{"a request", `{"jsonrpc":"2.0","id":5,"method":"x","params":{"a":1,"a":2}}`, ""},
		{"a request with a result", `{"jsonrpc":"2.0","id":5,"method":"x","result":{}}`, ""},
		{"an id that is none", `{"jsonrpc":"2.0","id":{"a":1},"result":{"a":1}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, theirs, _, _ := pipes(t, transport.LinesConfig{})
			go func() { _, _ = io.WriteString(theirs, c.line+"\n"+`{"jsonrpc":"2.0","method":"next"}`+"\n") }()
			m := read(t, conn)
			if c.lost != "" {
				if string(m.ID) != c.lost || !errors.Is(m.Lost, transport.ErrUnreadable) || m.Err == nil || m.Err.Code != mcp.CodeLost || !m.IsResponse() {
					t.Fatalf("%s, lost %v", m.Bytes(), m.Lost)
				}
				m = read(t, conn)
			}
			if m.Method != "next" {
				t.Errorf("%s", m.Bytes())
			}
		})
	}
}

// Text that JSON.stringify wrote with half a surrogate pair can be read.
func TestLinesHalfASurrogatePair(t *testing.T) {
	conn, theirs, _, _ := pipes(t, transport.LinesConfig{})
	go func() { _, _ = io.WriteString(theirs, `{"jsonrpc":"2.0","id":5,"result":{"text":"cut \ud83d"}}`+"\n") }()
	if m := read(t, conn); mcp.Text(m.Result, "text") != "cut \ufffd" {
		t.Errorf("%s, lost %v", m.Bytes(), m.Lost)
	}
}

func TestLinesWriteFails(t *testing.T) {
	conn, _, _, end := pipes(t, transport.LinesConfig{})
	_ = end.CloseWithError(errors.New("gone"))
	if e := refused(t, conn, request(1, "ping", "")); !e.NothingSent || e.Err.Error() != "gone" {
		t.Errorf("%+v", e)
	}
	if e := refused(t, conn, request(2, "ping", "")); !e.NothingSent {
		t.Errorf("after a failure: %+v", e)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if e := refused(t, conn, request(3, "ping", "")); !e.NothingSent || !errors.Is(e, transport.ErrClosed) {
		t.Errorf("after Close: %+v", e)
	}
	if _, err := conn.Read(within(t)); err != io.EOF {
		t.Errorf("after Close: %v", err)
	}
}

// TestLinesHalfSent: half a line counts as sent, and nothing is written after it.
func TestLinesHalfSent(t *testing.T) {
	conn, _, ours, end := pipes(t, transport.LinesConfig{})
	got := make(chan error, 1)
	go func() { got <- conn.Write(within(t), request(1, "ping", "")) }()
	if _, err := ours.ReadByte(); err != nil { // the reader takes everything offered
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	go func() { got <- conn.Write(within(t), request(2, "ping", "{}")) }()
	if _, err := io.ReadFull(end, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	_ = end.Close()
	var e *transport.SendError
	if err := <-got; !errors.As(err, &e) || e.NothingSent {
		t.Errorf("%v", err)
	}
}

func TestLinesWriteContext(t *testing.T) {
	conn, _, ours, _ := pipes(t, transport.LinesConfig{})
	busy, cancelBusy := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() { first <- conn.Write(busy, request(1, "first", "")) }()
	if b, err := ours.Peek(1); err != nil || b[0] != '{' {
		t.Fatal(err) // the first line is partly read: it is being written
	}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	go func() { first <- conn.Write(busy, request(2, "second", "")) }()
	// The second is handed to the pipe without a reader; the third waits.
	gone, cancelGone := context.WithCancel(context.Background())
	third := make(chan error, 1)
	go func() { third <- conn.Write(gone, request(3, "third", "")) }()
	cancelGone()
	cancelBusy()
	results := map[bool]int{}
	for _, ch := range []chan error{first, third} {
		var e *transport.SendError
		if err := <-ch; !errors.As(err, &e) || !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		results[e.NothingSent]++
	}
	if results[true] == 0 {
		t.Error("neither of two messages for one turn was kept from being sent")
	}
}

func TestLinesManyWriters(t *testing.T) {
	conn, _, ours, _ := pipes(t, transport.LinesConfig{})
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := conn.Write(within(t), request(w*each+i, "ping", `{"pad":"`+strings.Repeat("x", i*10)+`"}`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[string]bool{}
	for range writers * each {
		line, err := ours.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		m := mcp.Get(line, "id")
		if seen[string(m)] || mcp.Text(line, "method") != "ping" {
			t.Fatalf("%s", line)
		}
		seen[string(m)] = true
	}
	wg.Wait()
}

// TestLinesCloseUnblocks: Close ends a Read, a Write and the connection's goroutines
// even if the peer does nothing.
func TestLinesCloseUnblocks(t *testing.T) {
	conn, _, _, _ := pipes(t, transport.LinesConfig{})
	errs := make(chan error, 2)
	go func() { _, err := conn.Read(context.Background()); errs <- err }()
	go func() { errs <- conn.Write(context.Background(), request(1, "ping", "")) }()
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-errs; err == nil {
			t.Error("no error")
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := conn.Read(ctx); err == nil {
		t.Error("no error")
	}
}
