package config

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	machine := file("MemFree: 1 kB\nMemTotal:       16384 kB\n")
	for name, x := range map[string]struct {
		root fstest.MapFS
		soft int64
		want int64
	}{
		"nothing is known": {fstest.MapFS{}, math.MaxInt64, unknownMemory},
		"the machine":      {fstest.MapFS{"proc/meminfo": machine}, math.MaxInt64, 16 << 20},
		"GOMEMLIMIT":       {fstest.MapFS{"proc/meminfo": machine}, 5 << 20, 5 << 20},
		"a container":      {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("4194304\n")}, math.MaxInt64, 4 << 20},
		"no limit":         {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, math.MaxInt64, 16 << 20},
		"a unit's parent": {fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/toolkeep.service\n"),
			"sys/fs/cgroup/system.slice/memory.max": file("3145728"), "sys/fs/cgroup/system.slice/toolkeep.service/memory.max": file("max")}, math.MaxInt64, 3 << 20},
		"version 1": {fstest.MapFS{"proc/self/cgroup": file("5:cpu:/\n4:memory:/docker/x\n"),
			"sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": file("2097152")}, math.MaxInt64, 2 << 20},
	} {
		if got := memoryLimit(x.root, x.soft); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
	if n := (Calls{ResultMemory: 7}).ResultBytes(); n != 7 {
		t.Errorf("the setting gives %d", n)
	}
	if n := (Calls{}).ResultBytes(); n <= 0 {
		t.Errorf("this machine gives %d", n)
	}
}
