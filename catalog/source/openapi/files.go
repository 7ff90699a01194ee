package openapi

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/toolkeep/toolkeep"
)

// file is one parsed file.
type file struct {
	loc      string // location in its source: a slash path or a URL
	name     string // for display, without credentials and queries
	root     any
	sum      [32]byte
	warnings []string
	anchors  map[string]any     // $anchor and $dynamicAnchor, filled at first use
	ids      map[string]*object // $id
}

func (f *file) isJSON() bool { return strings.HasSuffix(strings.ToLower(f.name), ".json") }

func (f *file) warn(line int, format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf("%s:%d: %s", f.name, line, fmt.Sprintf(format, args...)))
}

// reader reads files and confines references to the document's folder or host.
type reader interface {
	// resolve returns the location of a reference in a file; reason says for people why it is
	// refused.
	resolve(base, ref string) (loc, reason string)
	// read reads at most limit+1 bytes. With a nil error and a reason the file is unavailable.
	read(ctx context.Context, loc string, limit int64) (data []byte, reason string)
	name(loc string) string
	close()
}

// files are the files of one Read. Each is read once; failures are cached.
type files struct {
	ctx   context.Context
	src   reader
	left  int64
	limit int64
	byLoc map[string]*file
	bad   map[string]string // location to reason
	// over is set when a limit of the whole Read is exceeded; it ends the Read.
	over *toolkeep.Error
}

func openFiles(ctx context.Context, o Options) (*files, *file, error) {
	limit := o.maxBytes
	if limit <= 0 {
		limit = maxBytes
	}
	fs := &files{ctx: ctx, left: limit, limit: limit, byLoc: map[string]*file{}, bad: map[string]string{}}
	var data []byte
	var loc, reason string
	switch {
	case o.Document != nil:
		loc, data, fs.src = o.Location, o.Document, alone{}
	case isURL(o.Location):
		web, err := newWeb(o)
		if err != nil {
			return nil, nil, err
		}
		loc, data, reason = web.open(ctx, o.Location, limit)
		fs.src = web
	default:
		dir := &folder{given: o.Root != ""}
		loc, data, reason = dir.open(o.Location, o.Root, limit)
		fs.src = dir
	}
	if reason != "" {
		fs.close()
		e := importError("the document could not be read: %s", reason)
		if ctx.Err() != nil {
			e = e.Because(ctx.Err())
		}
		return nil, nil, e
	}
	main, reason := fs.add(loc, data)
	if reason != "" {
		fs.close()
		return nil, nil, importError("the document could not be read: %s", reason).With("place", reason)
	}
	return fs, main, nil
}

func isURL(loc string) bool {
	l := strings.ToLower(loc)
	return strings.HasPrefix(l, "http://") || strings.HasPrefix(l, "https://")
}

func (s *files) close() {
	if s.src != nil {
		s.src.close()
	}
}

// add parses and stores a file.
func (s *files) add(loc string, data []byte) (*file, string) {
	if int64(len(data)) > s.left {
		s.over = importError("the document and what it refers to are larger than %d bytes", s.limit)
		return nil, s.over.Message
	}
	s.left -= int64(len(data))
	f := &file{loc: loc, name: s.src.name(loc), sum: sha256.Sum256(data)}
	root, err := parseTree(data, f)
	if err != nil {
		return nil, err.Error()
	}
	f.root = root
	markResources(f)
	s.byLoc[loc] = f
	return f, ""
}

// load returns the file that a reference in another file names.
func (s *files) load(from *file, ref string) (*file, string) {
	loc, reason := s.src.resolve(from.loc, ref)
	if reason != "" {
		return nil, reason
	}
	if f, ok := s.byLoc[loc]; ok {
		return f, ""
	}
	if reason, ok := s.bad[loc]; ok {
		return nil, reason
	}
	f, reason := s.fetch(loc)
	if reason != "" {
		s.bad[loc] = reason
	}
	return f, reason
}

func (s *files) fetch(loc string) (*file, string) {
	if s.over != nil {
		return nil, s.over.Message
	}
	if s.ctx.Err() != nil {
		return nil, "the time for reading is over"
	}
	if len(s.byLoc)+len(s.bad) >= maxFiles {
		s.over = importError("the document reaches more than %d files", maxFiles)
		return nil, s.over.Message
	}
	data, reason := s.src.read(s.ctx, loc, s.left)
	if reason != "" {
		return nil, reason
	}
	return s.add(loc, data)
}

// digest covers the document and every file it reached, by location.
func (s *files) digest() string {
	locs := slices.Sorted(maps.Keys(s.byLoc))
	if len(locs) == 1 {
		sum := s.byLoc[locs[0]].sum
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	h := sha256.New()
	for _, loc := range locs {
		fmt.Fprintf(h, "%x %s\n", s.byLoc[loc].sum, s.src.name(loc))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// alone is the reader of a document passed as bytes.
type alone struct{}

func (alone) resolve(_, ref string) (string, string) {
	return "", fmt.Sprintf("the reference %q leads to another file, and the document was sent without any; bundle them into one document", toolkeep.Clip(ref, 200))
}

func (alone) read(context.Context, string, int64) ([]byte, string) {
	return nil, "there is no such file"
}
func (alone) name(loc string) string { return loc }
func (alone) close()                 {}

// folder is the folder of a document on disk, or a given one around it. os.Root keeps every path
// inside, regardless of symbolic links.
type folder struct {
	root  *os.Root
	given bool
}

// outside ends the sentence about a file that is not in the folder.
func (d *folder) outside() string {
	if d.given {
		return "leads outside of the folder that --root names"
	}
	return "leads outside of the document's folder; --root DIR allows files of a folder around it"
}

func (d *folder) open(location, root string, limit int64) (loc string, data []byte, reason string) {
	p, reason := filePath(location)
	if reason != "" {
		return "", nil, reason
	}
	which := "the folder that --root names"
	if loc = filepath.Base(p); !d.given {
		root, which = filepath.Dir(p), "its folder"
	}
	var err error
	if d.root, err = os.OpenRoot(root); err != nil {
		return "", nil, which + " cannot be opened: " + plainReason(err)
	}
	if d.given {
		if loc, err = within(root, p); err != nil {
			return "", nil, filepath.Base(p) + ": " + plainReason(err)
		} else if loc == "" {
			return "", nil, "it is not in " + which
		}
	}
	// The user named the document itself, so it may be a symbolic link out of its folder; files it
	// refers to may not.
	info, err := os.Stat(p)
	if err != nil {
		return "", nil, filepath.Base(p) + ": " + plainReason(err)
	}
	if !info.Mode().IsRegular() {
		return "", nil, filepath.Base(p) + " is not a regular file"
	}
	f, err := os.Open(p)
	if err != nil {
		return "", nil, filepath.Base(p) + ": " + plainReason(err)
	}
	defer f.Close()
	data, reason = readAll(f, limit)
	return filepath.ToSlash(loc), data, reason
}

// within returns the path of a file in the folder root, "" if its folder is not in it. Links to
// either folder are followed.
func within(root, file string) (string, error) {
	var folders [2]string
	for i, dir := range []string{root, filepath.Dir(file)} {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		if folders[i], err = filepath.EvalSymlinks(abs); err != nil {
			return "", err
		}
	}
	rel, err := filepath.Rel(folders[0], folders[1])
	if err != nil || !filepath.IsLocal(rel) {
		return "", nil
	}
	return filepath.Join(rel, filepath.Base(file)), nil
}

func filePath(location string) (string, string) {
	if !strings.HasPrefix(strings.ToLower(location), "file:") {
		return location, ""
	}
	u, err := url.Parse(location)
	if err != nil || u.Host != "" && u.Host != "localhost" || u.Path == "" {
		return "", "the file URL names no path on this machine"
	}
	return filepath.FromSlash(u.Path), ""
}

func (d *folder) resolve(base, ref string) (string, string) {
	if u, err := url.Parse(ref); err == nil && (len(u.Scheme) > 1 || u.Host != "") {
		return "", fmt.Sprintf("the reference %q leads to a URL; a document on disk may refer only to files", toolkeep.Clip(ref, 200))
	}
	if strings.ContainsAny(ref, "\x00\\") {
		return "", fmt.Sprintf("the reference %q is not a relative path", toolkeep.Clip(ref, 200))
	}
	if i := strings.IndexByte(ref, '?'); i > 0 {
		ref = ref[:i]
	}
	loc := d.clean(base, ref)
	// Some documents escape the path and some do not: try the decoded form first. A path that
	// leaves the folder in either form is refused.
	if dec, err := url.PathUnescape(ref); err == nil && dec != ref {
		decoded := d.clean(base, dec)
		if decoded == "" || strings.ContainsAny(dec, "\x00\\") {
			loc = ""
		} else if _, err := d.root.Stat(filepath.FromSlash(decoded)); err == nil {
			loc = decoded
		}
	}
	if loc == "" {
		return "", fmt.Sprintf("the reference %q %s", toolkeep.Clip(ref, 200), d.outside())
	}
	return loc, ""
}

// clean joins base and reference; "" if that leaves the folder.
func (d *folder) clean(base, ref string) string {
	if path.IsAbs(ref) {
		return ""
	}
	loc := path.Join(path.Dir(base), ref)
	if loc == ".." || strings.HasPrefix(loc, "../") || !filepath.IsLocal(filepath.FromSlash(loc)) {
		return ""
	}
	return loc
}

func (d *folder) read(_ context.Context, loc string, limit int64) ([]byte, string) {
	p := filepath.FromSlash(loc)
	info, err := d.root.Stat(p)
	if err != nil {
		return nil, loc + ": " + d.reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, loc + " is not a regular file"
	}
	f, err := d.root.Open(p)
	if err != nil {
		return nil, loc + ": " + d.reason(err)
	}
	defer f.Close()
	data, reason := readAll(f, limit)
	if reason != "" {
		reason = loc + ": " + reason
	}
	return data, reason
}

// reason is plainReason, and tells of a link out of the folder.
func (d *folder) reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) && strings.Contains(pe.Err.Error(), "escapes") {
		return "it " + d.outside()
	}
	return plainReason(err)
}

func (d *folder) name(loc string) string { return loc }

func (d *folder) close() {
	if d.root != nil {
		d.root.Close()
	}
}

// readAll reads up to limit+1 bytes, so that the caller can detect an excess.
func readAll(r io.Reader, limit int64) ([]byte, string) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, plainReason(err)
	}
	return data, ""
}

// plainReason describes an error without paths, addresses or URLs.
func plainReason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		return "reading it is not permitted"
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	case errors.Is(err, context.Canceled):
		return "it was cancelled"
	}
	return "it could not be read"
}

// web is the host of a document behind a URL.
type web struct {
	client *http.Client
	base   *url.URL // final URL of the document
}

func newWeb(o Options) (*web, error) {
	if o.Client == nil {
		return nil, importError("a document behind a URL needs an HTTP client and none was given; download it and give the path")
	}
	c := *o.Client
	inner := c.CheckRedirect
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > 5 {
			return errRedirects
		}
		if first := via[0].URL; !sameHost(first, req.URL) {
			return errOtherHost
		}
		if inner != nil {
			return inner(req, via)
		}
		return nil
	}
	return &web{client: &c}, nil
}

var (
	errRedirects = errors.New("too many redirects")
	errOtherHost = errors.New("redirected to another host")
)

// sameHost reports whether b is on the host of a. http and https on the same name are the same host
// if both use their scheme's port.
func sameHost(a, b *url.URL) bool {
	if strings.EqualFold(a.Scheme, b.Scheme) {
		return strings.EqualFold(a.Host, b.Host)
	}
	return a.Scheme == "http" && b.Scheme == "https" && a.Port() == "" && b.Port() == "" &&
		strings.EqualFold(a.Hostname(), b.Hostname())
}

func (w *web) open(ctx context.Context, location string, limit int64) (string, []byte, string) {
	u, err := url.Parse(location)
	if err != nil || u.Host == "" {
		return "", nil, "the URL cannot be parsed"
	}
	u.Fragment = ""
	w.base = u
	data, final, reason := w.get(ctx, u, limit)
	if final != nil {
		w.base = final
	}
	return w.base.String(), data, reason
}

func (w *web) get(ctx context.Context, u *url.URL, limit int64) ([]byte, *url.URL, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, "the URL cannot be requested"
	}
	req.Header.Set("Accept", "application/yaml, application/json, */*;q=0.5")
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, nil, w.reason(u, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Sprintf("%s answered with status %d", safeURL(u), resp.StatusCode)
	}
	data, reason := readAll(resp.Body, limit)
	if reason != "" {
		return nil, nil, safeURL(u) + ": " + reason
	}
	final := *resp.Request.URL
	final.Fragment = ""
	return data, &final, ""
}

// reason never passes on the text of a *url.Error.
func (w *web) reason(u *url.URL, err error) string {
	var te *toolkeep.Error
	switch {
	case errors.Is(err, errOtherHost):
		return safeURL(u) + " redirects to another host; give the address it leads to"
	case errors.Is(err, errRedirects):
		return safeURL(u) + " redirects too often"
	case errors.As(err, &te):
		return safeURL(u) + ": " + te.Message
	}
	if r := plainReason(err); r != "it could not be read" {
		return safeURL(u) + ": " + r
	}
	return safeURL(u) + " could not be fetched" + unreached(err)
}

// unreached describes why the server was not reached; "" if unknown.
func unreached(err error) string {
	var (
		name    *net.DNSError
		verify  *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		waiting interface{ Timeout() bool }
	)
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return ": its host is not known here"
	case errors.Is(err, syscall.ECONNREFUSED):
		return ": nothing listens there"
	case errors.As(err, &verify):
		return ": its certificate is not trusted"
	case errors.As(err, &record):
		return ": what answers there does not speak TLS"
	case errors.As(err, &waiting) && waiting.Timeout():
		return ": it took too long"
	}
	return ""
}

func (w *web) resolve(base, ref string) (string, string) {
	b, err := url.Parse(base)
	if err != nil {
		return "", "the reference cannot be resolved"
	}
	r, err := url.Parse(ref)
	if err != nil {
		return "", fmt.Sprintf("the reference %q is not a URL", toolkeep.Clip(ref, 200))
	}
	u := b.ResolveReference(r)
	u.Fragment, u.RawFragment = "", ""
	if !sameHost(w.base, u) {
		return "", fmt.Sprintf("the reference %q leads to another host than the document's", toolkeep.Clip(safeURL(u), 200))
	}
	u.User = w.base.User
	return u.String(), ""
}

func (w *web) read(ctx context.Context, loc string, limit int64) ([]byte, string) {
	u, err := url.Parse(loc)
	if err != nil {
		return nil, "the reference cannot be resolved"
	}
	data, _, reason := w.get(ctx, u, limit)
	return data, reason
}

func (w *web) name(loc string) string {
	u, err := url.Parse(loc)
	if err != nil {
		return "a URL"
	}
	return safeURL(u)
}

func (w *web) close() {}

// safeURL removes what may contain credentials: user, query and fragment.
func safeURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
