package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep/datadir"
)

const (
	dayForm = time.DateOnly
	suffix  = ".seg"
	// unfinished begins the name of a file that is being written, and staleAge is when one was left by a crash.
	unfinished = "tmp-"
	staleAge   = time.Hour
)

// Name is a segment by its path below the folder.
type Name struct {
	Folder string // the tenant's
	Day    string
	Kind   string
	Writer int64
	First  int64
	Last   int64
	// Beside is random hex, where there was another file of the name; "" without.
	Beside string
}

// String returns the path, with slashes.
func (n Name) String() string { return n.Folder + "/" + n.Day + "/" + n.base() }

func (n Name) base() string {
	end := suffix
	if n.Beside != "" {
		end = "-" + n.Beside + suffix
	}
	if n.Kind == Checkpoints {
		return fmt.Sprintf("c-%d-%d%s", n.First, n.Last, end)
	}
	return fmt.Sprintf("j-%d-%d-%d%s", n.Writer, n.First, n.Last, end)
}

func (h *Header) name() Name {
	return Name{Folder: datadir.TenantFolder(h.Tenant), Day: h.Day, Kind: h.Kind, Writer: h.Writer, First: h.First, Last: h.Last}
}

// alone is the name as the header has it.
func (n Name) alone() Name {
	n.Beside = ""
	return n
}

var baseForm = regexp.MustCompile(`^(?:j-([0-9]{1,18})|c)-([0-9]{1,18})-([0-9]{1,18})(?:-([0-9a-f]{8}))?\.seg$`)

func parseName(folder, day, base string) (n Name, ok bool) {
	m := baseForm.FindStringSubmatch(base)
	if m == nil {
		return n, false
	}
	n = Name{Folder: folder, Day: day, Kind: Journal}
	if m[1] == "" {
		n.Kind = Checkpoints
	}
	n.Writer, _ = strconv.ParseInt("0"+m[1], 10, 64)
	n.First, _ = strconv.ParseInt(m[2], 10, 64)
	n.Last, _ = strconv.ParseInt(m[3], 10, 64)
	n.Beside = m[4]
	return n, n.First <= n.Last
}

// folder is the archive's folder.
type folder string

func (f folder) path(n Name) string { return filepath.Join(string(f), n.Folder, n.Day, n.base()) }

// tenants returns the names of the folders of tenants.
func (f folder) tenants() ([]string, error) {
	return f.dirs(string(f), func(string) bool { return true })
}

// days returns a tenant's days, the oldest first.
func (f folder) days(tenant string) ([]string, error) {
	return f.dirs(filepath.Join(string(f), tenant), func(name string) bool { _, err := time.Parse(dayForm, name); return err == nil })
}

func (f folder) dirs(path string, fits func(string) bool) (names []string, err error) {
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && fits(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// segments returns the segments of a tenant's day, by writer and number; checkpoints come first.
func (f folder) segments(tenant, day string) (list []Name, err error) {
	entries, err := os.ReadDir(filepath.Join(string(f), tenant, day))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if n, ok := parseName(tenant, day, e.Name()); ok {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, compareNames)
	return list, nil
}

// write makes the file of a segment, whole or not at all. There is none of the name: see Archive.place.
func (f folder) write(n Name, content []byte, hook func(step string)) error {
	path := f.path(n)
	dir := filepath.Dir(path)
	if err := f.makeDir(dir); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, unfinished+"*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	hook("written")
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	hook("renamed")
	return nil
}

// makeDir makes a day's folder, and syncs what is above it, so that it survives a loss of power.
func (f folder) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(syncDir(filepath.Dir(dir)), syncDir(string(f)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// read returns the content of a segment's file.
func (f folder) read(n Name) ([]byte, error) {
	file, err := os.Open(f.path(n))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = errChanged
	}
	return content, err
}

// header reads the header of a segment alone, and nothing shows that it was not changed.
func (f folder) header(n Name) (Header, error) {
	file, err := os.Open(f.path(n))
	if err != nil {
		return Header{}, err
	}
	defer file.Close()
	start, err := io.ReadAll(io.LimitReader(file, maxHeader+64))
	if err != nil {
		return Header{}, err
	}
	h, _, err := readHeader(start)
	if err == nil && h.name() != n.alone() {
		err = errPlace
	}
	return h, err
}

// removeStale removes what interrupted writes left in a tenant's day.
func (f folder) removeStale(tenant, day string, now time.Time) error {
	entries, err := os.ReadDir(filepath.Join(string(f), tenant, day))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unfinished) {
			continue
		}
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > staleAge {
			errs = append(errs, os.Remove(filepath.Join(string(f), tenant, day, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func compareNames(a, b Name) int {
	for _, c := range []int{strings.Compare(a.Kind, b.Kind), int(min(max(a.Writer-b.Writer, -1), 1)), int(min(max(a.First-b.First, -1), 1)), int(min(max(a.Last-b.Last, -1), 1))} {
		if c != 0 {
			return c
		}
	}
	return cmp.Or(strings.Compare(a.Day, b.Day), strings.Compare(a.Beside, b.Beside))
}
