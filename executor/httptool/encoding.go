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

// acceptEncoding names what unpack reads.
const acceptEncoding = "gzip, br, zstd, deflate"

const (
	maxEncodings = 2       // one packed into another
	maxWindow    = 8 << 20 // of zstd, as RFC 9659 has it for HTTP
)

var errTooLarge = errors.New("over the limit while still packed")

// encodingError says that the body is packed in a way that was not asked for or
// is broken.
type encodingError struct{ why string }

func (e encodingError) Error() string { return e.why }

// counter counts what came over the wire.
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

// unpacker reads a body as it is once unpacked.
type unpacker struct {
	body   io.LimitedReader
	wire   counter // reads body
	limit  int64
	layers []layer
}

// layer is one decoder with the bound on what goes into it.
type layer struct {
	in    *io.LimitedReader // nil where the wire itself goes in
	out   io.Reader
	close func()
}

// unpack makes the readers that the answer's Content-Encoding asks for. At most
// limit+1 bytes are read over the wire, and as many out of each layer, so that
// nothing small can become endless work.
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

// lazy opens a decoder when it is first read, because opening reads.
type lazy struct {
	in   io.Reader
	open func(io.Reader) (io.Reader, error)
	out  io.Reader
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.out == nil {
		out, err := l.open(l.in)
		if err != nil {
			return 0, notEOF(err) // a body that ends before it begins is broken
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

// inflate reads deflate as RFC 9110 has it, in a zlib wrapper, and as some servers
// send it, without.
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

// Read reads unpacked bytes. An error of the wire is itself; what a decoder says is
// an encodingError or errTooLarge.
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

// why tells a broken connection, our own limit and a broken encoding apart.
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

// readAnswer reads at most limit+1 bytes of the body as it is once unpacked, and
// no more than that over the wire.
func readAnswer(resp *http.Response, limit int64) (body []byte, wire int64, err error) {
	u, err := unpack(resp, limit)
	if err != nil {
		return nil, 0, err
	}
	defer u.close()
	var buf bytes.Buffer
	if len(u.layers) == 0 {
		// The announced length is believed up to 1 MiB: more is set aside as it comes.
		if size := resp.ContentLength; size > 0 {
			buf.Grow(int(min(size, 1<<20)) + bytes.MinRead)
		}
		_, err = buf.ReadFrom(&u.wire)
	} else {
		_, err = buf.ReadFrom(io.LimitReader(u, limit+1))
	}
	if err != nil {
		return nil, u.wire.n, err
	}
	return buf.Bytes(), u.wire.n, nil
}
