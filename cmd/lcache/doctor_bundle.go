package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/bundle"
	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/usage"
	"lcache/shuffle"
)

// bundleSamples is how often a bundle has the status.
const bundleSamples = 4

// bundleEvery is the time between two of them. Only tests change it.
var bundleEvery = time.Second

// bundleOptions are the options of a bundle.
type bundleOptions struct {
	file    string
	socket  string
	keep    bool // replace no names
	inspect string

	words   []string // that flags take
	servers []*watched
	silent  []string
}

// finish checks the options, before anything is measured.
func (o *bundleOptions) finish() error {
	switch {
	case o.inspect != "" && o.file != "":
		return usagef("give --bundle or --inspect, not both")
	case o.file == "" && o.keep:
		return usagef("--no-redact belongs to --bundle: add --bundle FILE.tar.gz")
	}
	if o.file == "" {
		return nil
	}
	if _, err := os.Lstat(o.file); err == nil {
		return usagef("--bundle %s: it exists: give another name", usage.Name(o.file))
	}
	const mayWrite = 2 // W_OK of access(2)
	if folder := filepath.Dir(o.file); syscall.Access(folder, mayWrite) != nil {
		return usagef("--bundle %s: can't write in the folder %s: give a file in a folder that exists, and that you may write", usage.Name(o.file), usage.Name(folder))
	}
	return nil
}

// connect connects to the servers of this user, or to the one that the user named. It is no error if none runs.
func (o *bundleOptions) connect() (err error) {
	if o.socket != "" {
		if o.servers, _, err = connectAll(o.socket, nil); attach.IsSilent(err) {
			o.silent, err = []string{"the server at " + usage.Name(o.socket)}, nil // the bundle then has what this machine shows
		}
		return err
	}
	found, silent, err := attach.DialRegistered(attach.Dir(), clientName(), func(string) bool { return false })
	for _, c := range found {
		o.servers = append(o.servers, &watched{Client: c})
	}
	o.silent = silent
	return err
}

func (o *bundleOptions) close() {
	for _, s := range o.servers {
		s.Close()
	}
}

// dirs returns the directories of the servers' caches.
func (o *bundleOptions) dirs() (dirs []string) {
	for _, s := range o.servers {
		if _, now, err := s.Status(); err == nil {
			dirs = append(dirs, now.Cache.Dirs...)
		}
	}
	return dirs
}

// wordsOfFlags returns the names of all commands and flags, and the words that flags take.
func wordsOfFlags(root *cobra.Command) (words []string) {
	for _, cmd := range append(root.Commands(), root) {
		words = append(words, cmd.Name())
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			words = append(words, "--"+f.Name)
			if c, ok := f.Value.(*choice); ok {
				words = append(words, c.words...)
			}
		})
	}
	for _, recipe := range shuffle.Recipes() {
		words = append(words, recipe.Name)
	}
	return append(words, "true", "false", "--", "listen", "all") // listen: of --cluster
}

// write collects a bundle, prints the list of its contents, and then writes it.
func (o *bundleOptions) write(ctx context.Context, w io.Writer, g *globals, report *doctor.Report) error {
	collect := bundle.Options{Version: report.Version, Silent: o.silent, Process: g.diagnose(nil)(), Report: report, KeepNames: o.keep, Words: o.words, Samples: bundleSamples, Every: bundleEvery}
	for _, s := range o.servers {
		collect.Servers = append(collect.Servers, s.Client)
	}
	b, err := bundle.Collect(ctx, collect)
	if err != nil {
		return err
	}
	if !g.json {
		writeBundleContents(w, b, o.silent)
	}
	size, err := b.Write(o.file)
	if err != nil {
		return err
	}
	if g.json {
		return writeJSON(w, bundleDocument{Schema: 1, File: o.file, Bytes: size, Redacted: b.Redacted, Members: b.Members, Silent: o.silent})
	}
	_, err = fmt.Fprintf(w, "\nwrote %s, %s. Nothing was sent: look at it with lcache doctor --inspect FILE, then send it yourself\n", usage.Name(o.file), humanize.Bytes(uint64(size)))
	return err
}

// bundleDocument is what --json prints about a bundle.
type bundleDocument struct {
	Schema   int             `json:"schema"`
	File     string          `json:"file"`
	Bytes    int64           `json:"bytes"`
	Redacted bool            `json:"redacted"`
	Members  []bundle.Member `json:"members"`
	Silent   []string        `json:"silent,omitempty"` // servers that did not answer
}

func writeBundleContents(w io.Writer, b *bundle.Bundle, silent []string) {
	width := 0
	for _, m := range b.Members {
		width = max(width, len(m.Name))
	}
	fmt.Fprintln(w, "the bundle will have:")
	for _, m := range b.Members {
		fmt.Fprintf(w, "  %-*s  %8s  %s\n", width, m.Name, humanize.Bytes(uint64(len(m.Data))), m.About)
	}
	for _, name := range silent {
		fmt.Fprintf(w, "! %s does not answer, so its status, log and profiles are not in it: lcache status tells why\n", name)
	}
	if b.Redacted {
		fmt.Fprintln(w, "names of samples, users, hosts, buckets and paths are replaced; credentials are left out")
	} else {
		fmt.Fprintln(w, "NOT redacted: it has names of samples, users, hosts, buckets and paths; only credentials are left out")
	}
}

// inspectBundle prints a bundle.
func inspectBundle(w io.Writer, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for its writer
	if err != nil {
		return fmt.Errorf("inspect the bundle: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return usagef("--inspect %s: it is not a plain file", usage.Name(path))
	}
	if err := bundle.Read(f, (&bundle.Printer{To: w}).Print); err != nil {
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	return nil
}
