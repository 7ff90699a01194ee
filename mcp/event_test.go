package mcp_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/toolkeep/toolkeep/mcp"
)

// readEvents reads a whole stream as text.
func readEvents(r io.Reader, max int64) string {
	er := mcp.NewEventReader(r, max)
	var out []string
	for {
		e, err := er.Next()
		switch {
		case err == io.EOF:
			return strings.Join(out, "|")
		case errors.Is(err, mcp.ErrTooLarge):
			out = append(out, "too large "+e.ID)
			continue
		case err != nil:
			return strings.Join(append(out, err.Error()), "|")
		}
		s := fmt.Sprintf("%s,%s,%q", e.ID, e.Name, e.Data)
		if e.Retry != 0 {
			s += "," + e.Retry.String()
		}
		out = append(out, s)
	}
}

func TestEventReader(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"one", "data: a\n\n", `,,"a"`},
		{"all fields", "id: 7\nevent: message\nretry: 1500\ndata: {}\n\n", `7,message,"{}",1.5s`},
		{"CRLF", "id: 1\r\ndata: a\r\n\r\nid: 2\r\ndata: b\r\n\r\n", `1,,"a"|2,,"b"`},
		{"CR", "id: 1\rdata: a\r\rdata: b\r\r", `1,,"a"|,,"b"`},
		{"several lines", "data: a\ndata\ndata:b\ndata:  c\n\n", `,,"a\n\nb\n c"`},
		{"comments", ": hello\n\n:\ndata: a\n: x\n\n", `,,"a"`},
		{"unknown field", "foo: 1\n\ndata: a\nbar\n\n", `,,"a"`},
		{"id alone", "id: 9\n\n", `9,,""`},
		{"priming", "id: 9\ndata: \n\n", `9,,""`},
		{"retry alone", "retry: 20\n\n", `,,"",20ms`},
		{"bad retry", "retry: -1\nretry: 1.5\nretry: +1\nretry:\nretry: 99999999999999\n\ndata: a\n\n", `,,"a"`},
		{"NUL in id", "id: a\x00b\ndata: x\n\n", `,,"x"`},
		{"id is emptied", "id: a\nid\ndata: x\n\n", `,,"x"`},
		{"cut off", "data: a\n\ndata: b\n", `,,"a"`},
		{"cut off in a line", "data: a\n\ndata: b", `,,"a"`},
		{"byte order mark", "\ufeffdata: a\n\n\ufeffdata: b\n\ndata: c\n\n", `,,"a"|,,"c"`},
		{"colon in value", "data: a: b\n\n", `,,"a: b"`},
		{"long line", "id: 1\ndata: " + long + "\n\ndata: b\n\n", `1,,"` + long + `"|,,"b"`},
		{"long lines", "data: " + long + "\ndata: " + long + "\n\n", `,,"` + long + `\n` + long + `"`},
		{"long comment", ":" + long + "\ndata: b\n\n", `,,"b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
				if got := readEvents(r, 0); got != c.want {
					t.Errorf("got  %.300s\nwant %.300s", got, c.want)
				}
			}
		})
	}
}

func TestEventReaderLimit(t *testing.T) {
	const max = 100
	fits := "data: " + strings.Repeat("x", max-8) + "\n\n" // 6 + 92 + 2 line breaks
	for _, c := range []struct{ in, want string }{
		{fits, `,,"` + strings.Repeat("x", 92) + `"`},
		{"id: 4\n" + fits + "data: b\n\n", `too large 4|,,"b"`},
		{"id: 4\ndata: " + strings.Repeat("x", 70_000) + "\ndata: more\n\nid: 5\ndata: b\n\n", `too large 4|5,,"b"`},
		{strings.Repeat("data: 12345678\n", 7) + "\ndata: b\n\n", `too large |,,"b"`},
		{strings.Repeat(": keep alive\n", 100) + "data: b\n\n", `,,"b"`},
		{":" + strings.Repeat("x", 200) + "\ndata: a\n\ndata: b\n\n", `too large |,,"b"`},
		{"data: " + strings.Repeat("x", 200) + "\r\n\r\ndata: b\r\n\r\n", `too large |,,"b"`},
		{"data: " + strings.Repeat("x", 200) + "\r\rdata: b\r\r", `too large |,,"b"`},
		{"data: " + strings.Repeat("x", 200), ``},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
			if got := readEvents(r, max); got != c.want {
				t.Errorf("%.60q\n got %s\nwant %s", c.in, got, c.want)
			}
		}
	}
}

func TestEventReaderErrors(t *testing.T) {
	boom := errors.New("boom")
	if got := readEvents(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(boom)), 0); got != `,,"a"|boom` {
		t.Error(got)
	}
	if got := readEvents(idle{}, 0); got != io.ErrNoProgress.Error() {
		t.Error(got)
	}
}

// idle is a reader that returns neither bytes nor an error.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// TestEventReaderWaitsForNothing: an event is returned as soon as its last line break
// is there, even a CR that a LF might follow.
func TestEventReaderWaitsForNothing(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	go func() { _, _ = w.Write([]byte("data: a\r\r")) }()
	e, err := mcp.NewEventReader(r, 0).Next()
	if err != nil || string(e.Data) != "a" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestAppendEvent(t *testing.T) {
	for _, c := range []struct {
		e    mcp.Event
		want string
	}{
		{mcp.Event{Data: []byte(`{}`)}, "data: {}\n\n"},
		{mcp.Event{ID: "1", Name: "message", Retry: 2 * time.Second, Data: []byte("a")}, "event: message\nid: 1\nretry: 2000\ndata: a\n\n"},
		{mcp.Event{ID: "1"}, "id: 1\ndata: \n\n"},
		{mcp.Event{ID: "a\nb\x00", Name: "x\r\ny", Data: []byte("1\n2\r\n3\r4\n")}, "event: xy\nid: ab\ndata: 1\ndata: 2\ndata: 3\ndata: 4\ndata: \n\n"},
		{mcp.Event{Retry: time.Microsecond}, "retry: 1\ndata: \n\n"},
	} {
		if got := string(mcp.AppendEvent([]byte("x"), c.e)); got != "x"+c.want {
			t.Errorf("got %q", got)
		}
	}
}
