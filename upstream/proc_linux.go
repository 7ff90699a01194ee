package upstream

import (
	"bytes"
	"os"
	"strconv"
)

// proc is one process as /proc shows it.
type proc struct {
	pid, parent, session int
	pages                int64 // resident
}

// processes reads the process table, without processes that end meanwhile. It fails if
// there is no /proc.
func processes() ([]proc, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []proc
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid); ok {
			list = append(list, p)
		}
	}
	return list, nil
}

// readProc reads /proc/PID/stat. The program name, in brackets, may hold anything, so
// fields are counted from the last bracket.
func readProc(pid int) (proc, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return proc{}, false
	}
	// From here: state, parent, process group, session, … 22nd: resident pages.
	f := bytes.Fields(data[i+1:])
	if len(f) < 22 {
		return proc{}, false
	}
	number := func(b []byte) int64 { n, _ := strconv.ParseInt(string(b), 10, 64); return n }
	return proc{pid: pid, parent: int(number(f[1])), session: int(number(f[3])), pages: number(f[21])}, true
}

// below returns the descendants of a process, nearest first.
func below(root int, list []proc) []proc {
	children := make(map[int][]proc, len(list))
	for _, p := range list {
		children[p.parent] = append(children[p.parent], p)
	}
	var out []proc
	next := []int{root}
	for len(next) > 0 {
		of := next[0]
		next = next[1:]
		for _, p := range children[of] {
			out = append(out, p)
			next = append(next, p.pid)
		}
		delete(children, of) // a table read while it changes may contain a cycle
	}
	return out
}

// residentBytes returns the resident memory below each process, without the process
// itself: most of a reaper's pages are Toolkeep's own program.
func residentBytes(reapers []int) map[int]int64 {
	if len(reapers) == 0 {
		return nil
	}
	list, err := processes()
	if err != nil {
		return nil
	}
	sums := make(map[int]int64, len(reapers))
	for _, reaper := range reapers {
		for _, p := range below(reaper, list) {
			sums[reaper] += p.pages * int64(os.Getpagesize())
		}
	}
	return sums
}
