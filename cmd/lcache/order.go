package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/internal/serve/schedule"
	"lcache/shuffle"
)

// orderOptions are the options of lcache order.
type orderOptions struct {
	spec      shuffle.Spec
	epoch     int
	ranks     []int // whose orders are printed, one after the other; nil: the whole epoch
	allRanks  bool
	noSamples bool // --samples was not given
	format    string
	digest    bool
}

func newOrderCommand() *cobra.Command {
	var (
		o              orderOptions
		job            schedule.Job
		rank           int
		list, jsonFlag bool
		diff           bool
	)
	cmd := &cobra.Command{
		Use:   "order --recipe NAME --samples N --epoch E | order --list | order --diff A B",
		Short: "Print the order of an epoch, or list known shuffles",
		Long: "order replays a framework's shuffle and prints the indices of one epoch: one per line, as little-endian uint32, or as\n" +
			"JSON. With --rank it prints the batches of that rank, without it the order of all ranks together. It needs neither a\n" +
			"cache nor a server. --list prints every recipe with its parameters.\n\n" +
			"--diff compares the orders of two training runs. A and B are files with loader.state_dict() of lcache.torch as JSON, or\n" +
			"digests of orders. It names the options that differ. With --samples it also finds the first epoch, rank and position\n" +
			"that differ. It exits with 0 if A and B are equal, and with 1 if not.",
		Example: "  lcache order --recipe torch.distributed_sampler --samples 1281167 --world-size 8 --rank 3 --epoch 89 --digest\n" +
			"  lcache order --recipe torch.dataloader --samples 10 --seed 42 --param generator=explicit --epoch 1\n" +
			"  lcache order --list\n  lcache order --diff a.json b.json --samples 50000",
	}
	f := cmd.Flags()
	addJobFlags(f, &job)
	f.IntVar(&o.spec.Samples, "samples", 0, "number of samples in the dataset")
	f.IntVar(&o.epoch, "epoch", 0, "epoch, counted from 0")
	f.IntVar(&rank, "rank", 0, "print this rank's order only")
	o.format = "text"
	f.Var(&choice{&o.format, []string{"text", "u32le", "json"}}, "format", "output format")
	f.BoolVar(&jsonFlag, "json", false, "the same as --format json")
	f.BoolVar(&o.digest, "digest", false, "print the SHA-256 of the order, not the order")
	f.BoolVar(&list, "list", false, "print the recipes and their parameters")
	f.BoolVar(&diff, "diff", false, "compare two states of loaders, or two digests of orders")
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if !diff {
			return noArguments(cmd, args)
		}
		if len(args) != 2 {
			return usagef("order --diff needs two states: files with loader.state_dict() as JSON, or digests")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if jsonFlag {
			o.format = "json"
		}
		if list {
			return writeRecipes(cmd.OutOrStdout(), shuffle.Recipes(), o.format)
		}
		if err := o.finish(f, job, rank); err != nil {
			return err
		}
		if diff {
			return runOrderDiff(cmd.Context(), cmd.OutOrStdout(), args[0], args[1], o)
		}
		return runOrder(cmd.OutOrStdout(), o)
	}
	return cmd
}

// finish completes the options from the flags.
func (o *orderOptions) finish(f *pflag.FlagSet, job schedule.Job, rank int) error {
	o.spec.Recipe, o.spec.Seed, o.spec.Params = job.Recipe, job.Seed, job.Params
	o.spec.BatchSize, o.spec.World, o.spec.DropLast = job.BatchSize, job.World, job.DropLast
	o.ranks, o.allRanks = job.Ranks, f.Changed("ranks") && job.Ranks == nil
	o.noSamples = !f.Changed("samples")
	if f.Changed("rank") {
		if f.Changed("ranks") {
			return usagef("give --rank or --ranks, not both")
		}
		o.ranks = []int{rank}
	}
	return nil
}

// runOrderDiff compares two states, and exits with 1 if they differ.
func runOrderDiff(ctx context.Context, w io.Writer, nameA, nameB string, o orderOptions) error {
	if !o.noSamples && o.spec.Samples < 1 {
		return usagef("--samples %d: give the number of samples in the dataset, at least 1", o.spec.Samples)
	}
	a, err := readState(nameA)
	if err != nil {
		return err
	}
	b, err := readState(nameB)
	if err != nil {
		return err
	}
	d, err := diffStates(ctx, a, b, o.spec)
	if err != nil {
		return err
	}
	if o.format == "json" {
		err = writeJSON(w, d)
	} else {
		writeOrderDiff(w, d)
	}
	if err == nil && !d.Equal {
		return &endedWith{code: exitError}
	}
	return err
}

// runOrder writes the order, or its digest.
func runOrder(w io.Writer, o orderOptions) error {
	recipe, err := shuffle.Lookup(o.spec.Recipe)
	if err != nil {
		return err
	}
	for _, p := range recipe.Params {
		if p.Name == "n" && p.Required && o.noSamples {
			return recipe.Missing(p)
		}
	}
	if recipe.Numbers() {
		return writeNumbers(w, o)
	}
	order, err := replayOrder(o)
	if err != nil {
		return err
	}
	switch {
	case o.digest:
		return writeDigest(w, o, order)
	case o.format == "json":
		return writeOrderJSON(w, o, order)
	case o.format == "u32le":
		return writeOrderBinary(w, order)
	}
	return writeOrderText(w, order)
}

// replayOrder returns the order of some ranks, or of the whole epoch. With a world of one rank the epoch's order is that rank's order, without
// the samples that drop_last leaves out.
func replayOrder(o orderOptions) ([]uint32, error) {
	r, err := shuffle.New(o.spec)
	if err != nil {
		return nil, err
	}
	ranks := o.ranks
	switch {
	case ranks == nil && o.allRanks:
		for rank := range r.World() {
			ranks = append(ranks, rank)
		}
	case ranks == nil && r.World() == 1:
		ranks = []int{0}
	case ranks == nil:
		return r.Global(o.epoch, nil)
	}
	if len(ranks) == 1 {
		return r.Rank(o.epoch, ranks[0], nil)
	}
	var all, one []uint32
	for _, rank := range ranks {
		if one, err = r.Rank(o.epoch, rank, one); err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

func writeOrderText(w io.Writer, order []uint32) error {
	out := bufio.NewWriterSize(w, 1<<16)
	var line []byte
	for _, x := range order {
		line = append(strconv.AppendUint(line[:0], uint64(x), 10), '\n')
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("write the order: %w", err)
		}
	}
	return out.Flush()
}

func writeOrderBinary(w io.Writer, order []uint32) error {
	buf := make([]byte, 0, 1<<16)
	for len(order) > 0 {
		part := order[:min(len(order), cap(buf)/4)]
		order = order[len(part):]
		buf = buf[:0]
		for _, x := range part {
			buf = binary.LittleEndian.AppendUint32(buf, x)
		}
		if _, err := w.Write(buf); err != nil {
			return fmt.Errorf("write the order: %w", err)
		}
	}
	return nil
}

// orderHead has the fields that all JSON documents of order have.
type orderHead struct {
	Schema int    `json:"schema"`
	Recipe string `json:"recipe"`
	Epoch  int    `json:"epoch"`
	Ranks  []int  `json:"ranks,omitempty"`
}

func (o orderOptions) head() orderHead {
	return orderHead{Schema: 1, Recipe: o.spec.Recipe, Epoch: o.epoch, Ranks: o.ranks}
}

// writeOrderJSON writes the list without encoding/json, which would hold all of the text in memory.
func writeOrderJSON(w io.Writer, o orderOptions, order []uint32) error {
	head, err := json.Marshal(o.head())
	if err != nil {
		return fmt.Errorf("encode the order: %w", err)
	}
	out := bufio.NewWriterSize(w, 1<<16)
	out.Write(head[:len(head)-1]) // errors of a bufio.Writer stay until Flush
	out.WriteString(`,"order":[`)
	var number []byte
	for i, x := range order {
		if i > 0 {
			out.WriteByte(',')
		}
		number = strconv.AppendUint(number[:0], uint64(x), 10)
		out.Write(number)
	}
	out.WriteString("]}\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the order: %w", err)
	}
	return nil
}

func writeDigest(w io.Writer, o orderOptions, order []uint32) error {
	h := sha256.New()
	if err := writeOrderBinary(h, order); err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", h.Sum(nil))
	if o.format != "json" {
		_, err := fmt.Fprintln(w, sum)
		return err
	}
	return json.NewEncoder(w).Encode(struct {
		orderHead
		Count  int    `json:"count"`
		SHA256 string `json:"sha256"`
	}{o.head(), len(order), sum})
}

// writeNumbers writes the order of the one recipe that gives 64-bit numbers.
func writeNumbers(w io.Writer, o orderOptions) error {
	if o.digest || o.format == "u32le" {
		return usagef("recipe %s gives 64-bit numbers: print them with --format text or json", o.spec.Recipe)
	}
	numbers, err := shuffle.RandomInt64(o.spec)
	if err != nil {
		return err
	}
	if o.format == "json" {
		return json.NewEncoder(w).Encode(struct {
			orderHead
			Values []int64 `json:"values"`
		}{o.head(), numbers})
	}
	out := bufio.NewWriter(w)
	for _, x := range numbers {
		fmt.Fprintln(out, x)
	}
	return out.Flush()
}
