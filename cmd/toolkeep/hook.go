//go:build !crashtest

package main

// crashHook returns nil except in the crash tests' build.
func crashHook() func(step, id string) { return nil }

// ignoredNames lists environment names that look like settings but are not.
func ignoredNames() []string { return nil }
