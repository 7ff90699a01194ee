package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// blobID returns the id at the end of a blob's address.
func blobID(address string) string { return address[strings.LastIndexByte(address, '/')+1:] }

func (a *app) blobsCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "blobs get",
		Short:   "Fetch what was too large for a result",
		Example: "  toolkeep blobs get 5f6c1d2e -o result.json",
	})
	c.AddCommand(a.blobGetCmd())
	return c
}

func (a *app) blobGetCmd() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "get ID",
		Short: "Fetch the whole of a result that was cut",
		Long: `Fetch the whole of a result that was cut. call and invocations get print the id and the address; the caller
can read the result until it expires. Without -o it is printed.`,
		Example: "  toolkeep blobs get 5f6c1d2e -o result.json\n  toolkeep blobs get /api/v1/blobs/5f6c1d2e | jq .",
		Args:    arguments(1, 1, "the id that the call named"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.fetchBlob(cmd.Context(), cl, blobID(args[0]), out)
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write to, replaced once all of it has arrived")
	return c
}

func (a *app) fetchBlob(ctx context.Context, cl *client, id, out string) error {
	resp, err := cl.send(ctx, http.MethodGet, "/api/v1/blobs/"+url.PathEscape(id), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return problemOf(resp, raw)
	}
	if out == "" || out == "-" {
		if _, err = io.Copy(a.stdout, resp.Body); err != nil {
			return cl.brokeOff(ctx, err)
		}
		return nil
	}
	n, err := replaceFile(out, resp.Body)
	if err != nil {
		return cl.brokeOff(ctx, err)
	}
	fmt.Fprintf(a.stderr, "toolkeep: %d bytes are in %s\n", n, out)
	return nil
}

// brokeOff distinguishes a failed file from a failed server.
func (c *client) brokeOff(ctx context.Context, err error) error {
	var file *os.PathError
	if errors.As(err, &file) {
		return usagef("%v", err)
	}
	return c.unreachable(ctx, http.MethodGet, err)
}

// replaceFile writes a temporary file and renames it, so that name never holds a partial file. A special file, such
// as a pipe or /dev/null, is written to directly.
func replaceFile(name string, r io.Reader) (int64, error) {
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return 0, err
		}
		n, err := io.Copy(f, r)
		return n, errors.Join(err, f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".part-*")
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, r)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return n, errors.Join(err, os.Remove(f.Name()))
	}
	return n, nil
}
