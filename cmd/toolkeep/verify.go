package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

func (a *app) verifyCmd() *cobra.Command {
	var refs []string
	c := &cobra.Command{
		Use:   "verify FILE|-",
		Short: "Check that a signed result is as the server gave it",
		Long: `Check the signature of an answer, without a server: what REST answered to a call or for an invocation, or the
result of tools/call over MCP, from a file or standard input. --key names the key of results.signing_key as
env://NAME or file:///path; give it several times where the server's key was changed. It exits with 3 if the answer
is not signed by one of the keys, or is not as it was signed. What of an answer a signature does not cover is in
docs/results.md.`,
		Example: "  toolkeep call std.hash text=hello --answer > answer.json\n  toolkeep verify answer.json --key env://TOOLKEEP_SECRET_RESULTS",
		Args:    arguments(1, 1, "the file with the answer, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(refs) == 0 {
				return usagef("--key is missing: name the key that signs results, such as --key env://TOOLKEEP_SECRET_RESULTS")
			}
			var keys [][]byte
			for _, ref := range refs {
				key, err := resultKey(ref)
				if err != nil {
					return usagef("--key: %v", err)
				}
				keys = append(keys, key)
			}
			raw, err := a.input(args[0])
			if err != nil {
				return usagef("%v", err)
			}
			s, err := signing.ReadResult(raw)
			if err == nil {
				err = s.Verify(keys...)
			}
			if err != nil {
				return &failure{code: exitRefused, err: toolkeep.NewError(toolkeep.SignatureInvalid, "the answer cannot be trusted: %v", err)}
			}
			raw, err = json.Marshal(struct {
				signing.Result
				KeyID string `json:"key_id"`
			}{s.Result, s.KeyID})
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				r := &s.Result
				_, err := fmt.Fprintf(w, "the result is as the server gave it\n  call       %s of %s@%s: %s\n  tenant     %s\n  ended      %s\n  key        %s\n",
					r.Invocation, r.Tool, r.Version, r.Status, r.Tenant, r.Completed.Format(time.RFC3339), s.KeyID)
				return err
			})
		},
	}
	c.Flags().StringArrayVar(&refs, "key", nil, "key that signs results, as env://NAME or file:///path")
	return a.withJSON(c)
}

// input reads a file, or standard input for "-".
func (a *app) input(name string) ([]byte, error) {
	if name != "-" {
		return readFile(name)
	}
	raw, err := io.ReadAll(io.LimitReader(a.stdin, maxInput+1))
	if err == nil && len(raw) > maxInput {
		err = fmt.Errorf("standard input is over %d MiB", maxInput>>20)
	}
	return raw, err
}

// resultKey reads a key of this machine, as a server reads its reference.
func resultKey(ref string) (key []byte, err error) {
	name, isEnv := strings.CutPrefix(ref, "env://")
	file, isFile := strings.CutPrefix(ref, "file://")
	switch {
	case isEnv:
		if key = []byte(os.Getenv(name)); len(key) == 0 {
			return nil, fmt.Errorf("the environment variable %q is not set", name)
		}
	case isFile:
		if key, err = readFile(file); err != nil {
			return nil, err
		}
		key = []byte(strings.TrimSuffix(strings.TrimSuffix(string(key), "\n"), "\r"))
	default:
		return nil, errors.New("write env://NAME or file:///path; other references can be read by the server alone")
	}
	if len(key) < signing.MinKey {
		return nil, fmt.Errorf("the key of %s has %d bytes; one that signs has %d at least", ref, len(key), signing.MinKey)
	}
	return key, nil
}
