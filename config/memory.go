package config

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// unknownMemory is taken for the memory of a machine that does not tell it.
const unknownMemory = 4 << 30

// ResultBytes is calls.result_memory, or a quarter of what the process may use.
func (c Calls) ResultBytes() int64 {
	if c.ResultMemory > 0 {
		return c.ResultMemory
	}
	return memoryLimit(os.DirFS("/"), debug.SetMemoryLimit(-1)) / 4
}

// memoryLimit is the smallest of Go's soft limit, the limits of the process's cgroup, and the
// machine's memory, as Linux shows them below root.
func memoryLimit(root fs.FS, soft int64) int64 {
	limit := soft
	number := func(text string) {
		if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	read := func(name string) string {
		b, err := fs.ReadFile(root, name)
		if err != nil {
			return ""
		}
		return string(b)
	}
	for line := range strings.Lines(read("proc/self/cgroup")) {
		id, own, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, own, _ := strings.Cut(own, ":")
		base, file := "sys/fs/cgroup", "memory.max"
		switch {
		case id == "0" && controllers == "": // version 2
		case strings.Contains(","+controllers+",", ",memory,"):
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for at := path.Clean("/" + own); ; at = path.Dir(at) { // a parent's limit holds too
			number(read(path.Join(base, at, file)))
			if at == "/" {
				break
			}
		}
	}
	for line := range strings.Lines(read("proc/meminfo")) {
		if total, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			if kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(total), " kB"), 10, 64); err == nil && kb > 0 {
				limit = min(limit, kb<<10)
			}
		}
	}
	if limit == math.MaxInt64 {
		return unknownMemory
	}
	return limit
}
