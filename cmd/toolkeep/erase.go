package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"
)

func (a *app) auditEraseCmd() *cobra.Command {
	var person string
	var yes bool
	c := &cobra.Command{
		Use:   "erase --person ID --yes",
		Short: "Erase what was recorded of a person",
		Long: `Destroy the key with which the records and events of a person of your tenant are sealed, and have search forget the
person. It cannot be undone; the hash chains still verify. Every node takes it within a second. It needs the permission
audit:erase. docs/audit.md says what goes and what stays. Backups that were made before still have the key.`,
		Example: "  toolkeep audit erase --person alice@example.com --yes",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if person == "" {
				return usagef("name the person with --person: the one that agents acted for, or the subject of a credential that acts for none")
			}
			if !yes {
				return usagef("this destroys for good what is recorded of %s; say --yes if you mean it", person)
			}
			var answer struct {
				Digest string `json:"person_digest"`
				HadKey bool   `json:"had_key"`
			}
			return a.ask(cmd.Context(), http.MethodPost, "/api/v1/audit/erasures", map[string]any{"person": person}, &answer, func(w io.Writer) error {
				if !answer.HadKey {
					_, err := fmt.Fprintf(w, "There was no key of %s: nothing was sealed for that id. What search had learned is forgotten. The event names the person as %s.\n", person, answer.Digest)
					return err
				}
				_, err := fmt.Fprintf(w, "The key of %s is destroyed, and what search had learned is forgotten. The event names the person as %s.\n", person, answer.Digest)
				return err
			})
		},
	}
	c.Flags().StringVar(&person, "person", "", "the person that agents acted for, or the subject of a credential that acts for none")
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	return a.withJSON(c)
}
