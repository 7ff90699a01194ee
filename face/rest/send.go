package rest

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
	jsonType    = "application/json"
	problemType = "application/problem+json"
	// compressAbove is the size in bytes above which an answer is compressed.
	compressAbove = 1024
)

// Header values that never change; net/http reads them only.
var (
	noSniff       = []string{"nosniff"}
	noStore       = []string{"no-store"}
	typeJSON      = []string{jsonType}
	acceptEncoded = []string{"Accept-Encoding"}
)

// send writes a whole answer. Everything but streams ends here.
func (a *API) send(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	h := w.Header()
	if contentType == jsonType {
		h["Content-Type"] = typeJSON
	} else if contentType != "" {
		h["Content-Type"] = []string{contentType}
	}
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = noStore
	}
	if len(body) > compressAbove {
		h["Vary"] = acceptEncoded
		if e := chooseEncoding(r.Header["Accept-Encoding"]); e != identity {
			c := a.compressors[e].Get().(*compressor)
			defer a.compressors[e].Put(c)
			if small := c.compress(body); len(small) < len(body) {
				h["Content-Encoding"], body = []string{e.String()}, small
			}
		}
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.limits.WriteTimeout))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the peer is gone; nobody is left to tell
	}
}

// sendJSON marshals and sends; v is one of our own shapes.
func (a *API) sendJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	body, err := marshal(v)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	a.send(w, r, status, jsonType, body)
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
	var q [encodings]float64
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
	best := identity
	if q[gzipped] > 0 && q[gzipped] >= q[identity] {
		best = gzipped
	}
	if q[brotlied] > q[best] {
		best = brotlied
	}
	return best
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
