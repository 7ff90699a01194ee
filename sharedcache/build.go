package sharedcache

import (
	"fmt"
	"runtime/debug"
)

// Build describes a program and the settings that what it caches depends on. Nodes of different builds or settings may come
// to different values, so they share none. settings is a struct without pointers.
func Build(version string, settings any) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
				version += " " + s.Value
			}
		}
	}
	return fmt.Sprintf("%s %+v", version, settings)
}
