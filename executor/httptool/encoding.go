package httptool

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// acceptEncoding lists the encodings that unpack supports.
const acceptEncoding = "gzip, br, zstd, deflate"

const (
	maxEncodings = 2       // nested encodings
	maxWindow    = 8 << 20 // of zstd, by RFC 9659
)

var errTooLarge = errors.New("over the limit while still packed")

// encodingError says that the body's encoding was not requested or is broken.
type encodingError struct{ why string }

func (e encodingError) Error() string { return e.why }

// counter counts the bytes received.
type counter struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != io.EOF {
		c.err = err
	}
	return n, err
}

// unpacker reads a decompressed body.
type unpacker struct {
	body   io.LimitedReader
	wire   counter // the body as received
	limit  int64
	layers []layer
}

// layer is one decoder with a limit on its input.
type layer struct {
	in    *io.LimitedReader // nil if it reads the wire itself
	out   io.Reader
	close func()
}

// unpack builds the decoders for the response's Content-Encoding. It reads at most
// limit+1 bytes from the wire and from each layer, so that a small body cannot cause
// unbounded work.
func unpack(resp *http.Response, limit int64) (*unpacker, error) {
	u := &unpacker{limit: limit, body: io.LimitedReader{R: resp.Body, N: limit + 1}}
	u.wire.r = &u.body
	names := resp.Header["Content-Encoding"]
	if len(names) == 0 {
		return u, nil
	}
	encodings := strings.FieldsFunc(strings.ToLower(strings.Join(names, ",")), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	for i := len(encodings) - 1; i >= 0; i-- {
		if encodings[i] == "identity" {
			continue
		}
		if len(u.layers) == maxEncodings {
			return nil, encodingError{"the upstream packed its answer more than twice, which is not read"}
		}
		if err := u.add(encodings[i]); err != nil {
			u.close()
			return nil, err
		}
	}
	return u, nil
}

func (u *unpacker) add(encoding string) error {
	var l layer
	var in io.Reader = &u.wire
	if n := len(u.layers); n > 0 {
		l.in = &io.LimitedReader{R: u.layers[n-1].out, N: u.limit + 1}
		in = l.in
	}
	l.close = func() {}
	switch encoding {
	case "gzip", "x-gzip":
		l.out = &lazy{in: in, open: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }}
	case "deflate":
		l.out = &lazy{in: in, open: inflate}
	case "br":
		l.out = brotli.NewReader(in)
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return encodingError{"the upstream's answer cannot be unpacked"}
		}
		l.out, l.close = z, z.Close
	default:
		return encodingError{"the upstream sent an encoding of its answer that was not asked for; " + acceptEncoding + " are read"}
	}
	u.layers = append(u.layers, l)
	return nil
}

// lazy opens a decoder at the first read, because opening reads.
type lazy struct {
	in   io.Reader
	open func(io.Reader) (io.Reader, error)
	out  io.Reader
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.out == nil {
		out, err := l.open(l.in)
		if err != nil {
			return 0, notEOF(err) // a body that ends here is broken
		}
		l.out = out
	}
	return l.out.Read(p)
}

func notEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// inflate reads deflate in a zlib wrapper, as in RFC 9110, or raw, as some servers send
// it.
func inflate(in io.Reader) (io.Reader, error) {
	r := bufio.NewReader(in)
	head, err := r.Peek(2)
	if err != nil {
		return nil, err
	}
	if head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(r)
	}
	return flate.NewReader(r), nil
}

// Read reads decompressed bytes. Errors of the connection are returned unchanged; a
// decoder's error is an encodingError or errTooLarge.
func (u *unpacker) Read(p []byte) (int, error) {
	if len(u.layers) == 0 {
		return u.wire.Read(p)
	}
	n, err := u.layers[len(u.layers)-1].out.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, u.why()
}

// why distinguishes a broken connection, the own limit and a broken encoding.
func (u *unpacker) why() error {
	if u.wire.err != nil {
		return u.wire.err
	}
	if u.wire.n > u.limit {
		return errTooLarge
	}
	for _, l := range u.layers {
		if l.in != nil && l.in.N <= 0 {
			return errTooLarge
		}
	}
	return encodingError{"the upstream's answer is packed and cannot be unpacked: it is broken or cut off"}
}

func (u *unpacker) close() {
	for _, l := range u.layers {
		l.close()
	}
}

// growing tells grow, if it is set, of what is read.
type growing struct {
	io.Reader
	grow func(bytes int64) error
}

func (g *growing) Read(b []byte) (int, error) {
	n, err := g.Reader.Read(b)
	if g.grow != nil && n > 0 {
		if gerr := g.grow(int64(n)); gerr != nil {
			return n, gerr
		}
	}
	return n, err
}

// atMost gives errTooLarge once more than left bytes are read.
type atMost struct {
	io.Reader
	left int64
}

func (m *atMost) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	if m.left -= int64(n); m.left < 0 {
		return n, errTooLarge
	}
	return n, err
}

// readAnswer reads at most limit+1 bytes of the decompressed body, and at most that
// many from the wire. If keep takes the body, it reads it and there is none here.
func readAnswer(resp *http.Response, limit int64, grow func(int64) error, keep func(io.Reader) (bool, error)) (body []byte, wire int64, err error) {
	u, err := unpack(resp, limit)
	if err != nil {
		return nil, 0, err
	}
	defer u.close()
	if keep != nil {
		if kept, err := keep(&atMost{u, limit}); kept || err != nil {
			return nil, u.wire.n, err
		}
	}
	var buf bytes.Buffer
	if len(u.layers) == 0 {
		// Preallocate by the announced length only up to 1 MiB.
		if size := resp.ContentLength; size > 0 {
			buf.Grow(int(min(size, 1<<20)) + bytes.MinRead)
		}
		_, err = buf.ReadFrom(&growing{&u.wire, grow})
	} else {
		_, err = buf.ReadFrom(&growing{io.LimitReader(u, limit+1), grow})
	}
	if err != nil {
		return nil, u.wire.n, err
	}
	return buf.Bytes(), u.wire.n, nil
}
