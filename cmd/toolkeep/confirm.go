package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// confirm asks on a terminal for a typed yes to what was shown. Elsewhere, and under --json, only yes (--yes) goes on.
func (a *app) confirm(ctx context.Context, yes bool, to string) error {
	if yes {
		return nil
	}
	in, ok := a.stdin.(*os.File)
	if !ok || a.json || !isTerminal(in) {
		return &failure{code: exitRefused, err: fmt.Errorf("nothing was changed: to %s, look at what is shown above and repeat the command with --yes", to)}
	}
	fmt.Fprintf(a.stderr, "Type yes to %s: ", to)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(io.LimitReader(in, 100)).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.TrimSpace(line) == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
	}
	return &failure{code: exitRefused, err: errors.New("nothing was changed")}
}
