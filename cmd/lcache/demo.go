package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lcache/figures"
)

type demoOptions struct {
	source string
	dir    string // the cache is made below it
	keep   bool
	epochs int
	world  int
	batch  int
	python string
	client string // folder of the Python package
}

func newDemoCommand(g *globals) *cobra.Command {
	o := demoOptions{epochs: 4, world: 2, batch: 64}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Do the whole job on real files, check every byte, and show a table",
		Long: "demo ingests a folder of real files (the source of the Go toolchain), serves it, and reads it for some epochs\n" +
			"in fully shuffled order from Python, as several ranks. Every sample is compared with its file, and the order\n" +
			"with that of torch's DistributedSampler, worked out anew in Python. Then all again with half of the space.\n" +
			"The cache lies in a new folder below --dir and is removed at the end. Ends with 1 if any check failed.",
		Example: "  lcache demo\n  lcache demo --source /data/train --dir /nvme --epochs 2",
	}
	f := cmd.Flags()
	f.StringVar(&o.source, "source", "", "a `DIR` of folders of files (default: the Go toolchain's src)")
	f.StringVar(&o.dir, "dir", ".", "the `DIR` where the cache's temporary folder is made")
	f.BoolVar(&o.keep, "keep", false, "leave the caches there")
	f.IntVar(&o.epochs, "epochs", o.epochs, "epochs to read")
	f.IntVar(&o.world, "world-size", o.world, "ranks, one process each")
	f.IntVar(&o.batch, "batch-size", o.batch, "samples in a mini-batch")
	f.StringVar(&o.python, "python", "python3", "the `PYTHON` to read with")
	f.StringVar(&o.client, "client", "python", "the `DIR` that has the Python package lcache")
	f.BoolVar(&g.json, "json", false, "the figures as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.complete(); err != nil {
			return err
		}
		d := &demo{o: o, bar: newProgress(g, cmd.ErrOrStderr()), logs: cmd.ErrOrStderr(), quiet: g.quiet}
		if !g.json {
			d.out = cmd.OutOrStdout()
		}
		result, err := d.run(cmd.Context())
		if err != nil {
			return err
		}
		if g.json {
			if err := writeJSON(cmd.OutOrStdout(), result); err != nil {
				return err
			}
		}
		if failed := result.failed(); len(failed) > 0 {
			return fmt.Errorf("%s: %s", figures.Plural(int64(len(failed)), "check failed", "checks failed"), failed[0])
		}
		return nil
	}
	return cmd
}

// complete checks the options and fills in what was left open.
func (o *demoOptions) complete() error {
	if o.epochs < 1 || o.world < 1 || o.batch < 1 {
		return usagef("--epochs, --world-size and --batch-size must be at least 1")
	}
	if o.source == "" {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return usagef("no Go toolchain here to take files from: give --source DIR")
		}
		o.source = filepath.Join(strings.TrimSpace(string(root)), "src")
	}
	for _, p := range []*string{&o.source, &o.dir, &o.client} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
		*p = abs
	}
	if _, err := os.Stat(filepath.Join(o.client, "lcache", "__init__.py")); err != nil {
		return usagef("no Python package lcache in %s: run demo in the project's folder, or give --client DIR", o.client)
	}
	if _, err := exec.LookPath(o.python); err != nil {
		return fmt.Errorf("no %s: install Python 3.9 or newer, or give --python", o.python)
	}
	return nil
}
