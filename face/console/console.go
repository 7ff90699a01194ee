// Package console serves the web console: the files that make console builds from web/, which are in the program.
package console

import (
	"bytes"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"

	"github.com/toolkeep/toolkeep/face/gate"
)

//go:embed all:dist
var built embed.FS

// Config configures a Console.
type Config struct {
	Gate *gate.Gate // required
	// Files are those of the console; nil: those in the program.
	Files fs.FS
	// BaseURL is the address under which browsers reach the server; a proxy takes its path off. Required.
	BaseURL func() string
	// Login names the ways to log in, as the page knows them: key.
	Login []string
	Off   bool // nothing is served
}

// Console answers with the files and pages of the console.
type Console struct {
	c     Config
	files map[string]*file
	pages []*regexp.Regexp // the paths of its pages
	page  string           // "" if the console was not built
}

// file is a file as it is kept, and as it is sent to clients that do not take that.
type file struct {
	contentType, cache string
	packed             []byte
	gzip, plain        func() []byte
}

// types are of the files that a build makes; mime knows others by what is installed.
var types = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
	".json": gate.JSONType, ".png": "image/png", ".webp": "image/webp", ".ico": "image/x-icon", ".woff2": "font/woff2"}

// hashed is a name that changes with its content.
var hashed = regexp.MustCompile(`-[A-Za-z0-9_-]{8}\.[a-z0-9]+$`)

// New reads the files. It panics if they cannot be used, which is a mistake of the build.
func New(c Config) *Console {
	if c.Off {
		return &Console{c: c}
	}
	s, err := read(c)
	if err != nil {
		panic(fmt.Sprintf("console: the files cannot be used, build them again with make console: %v", err))
	}
	return s
}

func read(c Config) (*Console, error) {
	if c.Files == nil {
		c.Files, _ = fs.Sub(built, "dist") // dist is in the program
	}
	s := &Console{c: c, files: map[string]*file{}}
	err := fs.WalkDir(c.Files, ".", func(name string, d fs.DirEntry, err error) error {
		at, packed := strings.CutSuffix(name, ".br")
		if err != nil || d.IsDir() || !packed {
			return err
		}
		body, err := fs.ReadFile(c.Files, name)
		if err != nil {
			return err
		}
		s.files["/"+at] = newFile(at, body)
		return nil
	})
	if err != nil {
		return nil, err
	}
	index := s.files["/index.html"]
	if index == nil {
		s.pages = []*regexp.Regexp{regexp.MustCompile(`^/(login)?$`)}
		return s, nil
	}
	delete(s.files, "/index.html")
	s.page = string(index.plain())
	raw, err := fs.ReadFile(c.Files, "routes.json")
	var routes []string
	if err == nil {
		err = json.Unmarshal(raw, &routes)
	}
	for _, r := range routes {
		s.pages = append(s.pages, pattern(r))
	}
	if err == nil && s.page == "" {
		err = errors.New("index.html.br is damaged")
	}
	return s, err
}

func newFile(name string, packed []byte) *file {
	f := &file{contentType: types[path.Ext(name)], cache: "max-age=300", packed: packed}
	if f.contentType == "" {
		f.contentType = mime.TypeByExtension(path.Ext(name))
	}
	if hashed.MatchString(name) {
		f.cache = "public, max-age=31536000, immutable"
	}
	f.plain = sync.OnceValue(func() []byte {
		body, _ := io.ReadAll(brotli.NewReader(bytes.NewReader(packed))) // "" for what is damaged, which New finds in the page
		return body
	})
	f.gzip = sync.OnceValue(func() []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(f.plain()) // a buffer takes all
		_ = w.Close()
		return b.Bytes()
	})
	return f
}

// pattern matches the paths of a page, such as /tools/:id/:view?; * is any rest.
func pattern(route string) *regexp.Regexp {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.Trim(route, "/"), "/") {
		switch {
		case part == "":
		case strings.HasPrefix(part, "*"):
			b.WriteString(`(/.*)?`)
		case part[0] == ':' && strings.HasSuffix(part, "?"):
			b.WriteString(`(/[^/]+)?`)
		case part[0] == ':':
			b.WriteString(`/[^/]+`)
		default:
			b.WriteString("/" + regexp.QuoteMeta(part))
		}
	}
	return regexp.MustCompile("^" + b.String() + "/?$")
}

// Serve answers a request for a file or page of the console; false means that it is for neither, and nothing was sent.
func (s *Console) Serve(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	if f := s.files[r.URL.Path]; f != nil {
		protect(w.Header(), "")
		s.sendFile(w, r, f)
		return true
	}
	for _, p := range s.pages {
		if p.MatchString(r.URL.Path) {
			s.sendPage(w, r)
			return true
		}
	}
	return false
}

func (s *Console) sendFile(w http.ResponseWriter, r *http.Request, f *file) {
	h := w.Header()
	h.Set("Cache-Control", f.cache)
	switch {
	case gate.Accepts(r, "br"):
		s.c.Gate.SendEncoded(w, r, f.contentType, "br", f.packed)
	case gate.Accepts(r, "gzip"):
		s.c.Gate.SendEncoded(w, r, f.contentType, "gzip", f.gzip())
	default:
		s.c.Gate.SendEncoded(w, r, f.contentType, "", f.plain())
	}
}

// sendPage sends the page, which shows what its address names. It is the same for all, so it needs no credential.
func (s *Console) sendPage(w http.ResponseWriter, r *http.Request) {
	nonce := rand.Text()
	protect(w.Header(), nonce)
	if s.page == "" {
		s.c.Gate.Send(w, r, http.StatusServiceUnavailable, "text/plain; charset=utf-8", []byte("The web console was not built into this program. Build it with: make console\n"))
		return
	}
	base := "/"
	if u, err := url.Parse(s.c.BaseURL()); err == nil {
		base = strings.TrimRight(u.EscapedPath(), "/") + "/"
	}
	body := strings.NewReplacer("{{base}}", html.EscapeString(base), "{{nonce}}", nonce, "{{login}}", html.EscapeString(strings.Join(s.c.Login, " "))).Replace(s.page)
	s.c.Gate.Send(w, r, http.StatusOK, "text/html; charset=utf-8", []byte(body))
}

// protect says what the console's pages may do: load and ask this server alone, and be in no frame. nonce is for styles that its
// parts insert; scripts have none.
func protect(h http.Header, nonce string) {
	style := "style-src 'self'"
	if nonce != "" {
		style += " 'nonce-" + nonce + "'"
	}
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; "+style+"; img-src 'self' blob:; font-src 'self'; connect-src 'self'; form-action 'self'; "+
		"base-uri 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()")
}
