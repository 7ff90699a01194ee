package gate

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
)

const (
	// JSONType is the content type of bodies.
	JSONType = "application/json"
	// compressAbove is the size in bytes above which an answer is compressed.
	compressAbove = 1024
)

// Header values that never change; net/http reads them only.
var (
	noStore       = []string{"no-store"}
	typeJSON      = []string{JSONType}
	acceptEncoded = []string{"Accept-Encoding"}
)

// Send writes a whole answer, compressed where the client takes that.
func (g *Gate) Send(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	h := w.Header()
	if contentType == JSONType {
		h["Content-Type"] = typeJSON
	} else if contentType != "" {
		h["Content-Type"] = []string{contentType}
	}
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = noStore
	}
	if len(body) > compressAbove {
		vary(h)
		if e := chooseEncoding(r.Header["Accept-Encoding"]); e != identity {
			c := g.compressors[e].Get().(*compressor)
			defer g.compressors[e].Put(c)
			if small := c.compress(body); len(small) < len(body) {
				h["Content-Encoding"], body = []string{e.String()}, small
			}
		}
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(g.limits.WriteTimeout))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the peer is gone and cannot be told
	}
}

// SendEncoded writes a whole answer that was compressed before, "" for one that was not; see Accepts.
func (g *Gate) SendEncoded(w http.ResponseWriter, r *http.Request, contentType, encoding string, body []byte) {
	h := w.Header()
	h["Content-Type"] = []string{contentType}
	vary(h)
	if encoding != "" {
		h["Content-Encoding"] = []string{encoding}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(g.limits.WriteTimeout))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the peer is gone and cannot be told
	}
}

// Accepts tells whether the client takes a coding, br or gzip.
func Accepts(r *http.Request, coding string) bool {
	q := weights(r.Header["Accept-Encoding"])
	if coding == "br" {
		return q[brotlied] > 0
	}
	return q[gzipped] > 0
}

// vary says that the answer depends on what the client decodes.
func vary(h http.Header) {
	if h["Vary"] == nil {
		h["Vary"] = acceptEncoded
		return
	}
	h.Add("Vary", "Accept-Encoding")
}

// SendCompressed begins an answer of some bytes that write makes, and is false
// where it is not to be compressed. A write that fails cuts the connection.
func (g *Gate) SendCompressed(w http.ResponseWriter, r *http.Request, bytes int64, write func(io.Writer)) bool {
	e := chooseEncoding(r.Header["Accept-Encoding"])
	if e == identity || bytes <= compressAbove {
		return false
	}
	h := w.Header()
	h.Set("Content-Encoding", e.String())
	vary(h)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return true
	}
	c := g.compressors[e].Get().(*compressor)
	defer g.compressors[e].Put(c)
	c.w.Reset(w)
	write(c.w)
	if err := c.w.Close(); err != nil {
		panic(http.ErrAbortHandler)
	}
	return true
}

type encoding int

const (
	identity encoding = iota
	gzipped
	brotlied
	encodings
)

func (e encoding) String() string { return [...]string{"identity", "gzip", "br"}[e] }

// chooseEncoding picks what the client likes best, gzip among equals because it
// costs less here.
func chooseEncoding(accept []string) encoding {
	q := weights(accept)
	best := identity
	if q[gzipped] > 0 && q[gzipped] >= q[identity] {
		best = gzipped
	}
	if q[brotlied] > q[best] {
		best = brotlied
	}
	return best
}

// weights are how much the client likes each.
func weights(accept []string) (q [encodings]float64) {
	for _, line := range accept {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			weight := 1.0
			if v, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
				f, err := strconv.ParseFloat(v, 64)
				if err != nil {
					continue
				}
				weight = f
			}
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "gzip", "x-gzip":
				q[gzipped] = weight
			case "br":
				q[brotlied] = weight
			case "identity":
				q[identity] = weight
			}
		}
	}
	return q
}

// compressor is a reusable writer with its buffer.
type compressor struct {
	w interface {
		io.WriteCloser
		Reset(io.Writer)
		Flush() error
	}
	buf bytes.Buffer
}

// compress gives the packed body, valid until the next use.
func (c *compressor) compress(body []byte) []byte {
	c.buf.Reset()
	c.w.Reset(&c.buf)
	// Writes to a buffer cannot fail.
	_, _ = c.w.Write(body)
	_ = c.w.Close()
	return c.buf.Bytes()
}

func newCompressors() [encodings]*sync.Pool {
	return [encodings]*sync.Pool{
		gzipped: {New: func() any {
			w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is a valid constant
			return &compressor{w: w}
		}},
		brotlied: {New: func() any { return &compressor{w: brotli.NewWriterLevel(nil, 3)} }},
	}
}
