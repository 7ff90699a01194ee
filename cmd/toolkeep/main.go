// Command toolkeep is the one binary: the server, and the client of a running
// one. `toolkeep help` lists what it does.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, stop, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	os.Exit(code)
}
