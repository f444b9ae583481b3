package ingest

import (
	"context"
	"errors"

	"lcache/cache"
	"lcache/sample"
	"lcache/source"
)

// tellCost tells what the missing samples of a remote source will cost, before the first of them is read.
func (in *run) tellCost(todo []sample.Index, total int64) {
	requests, ok := source.RequestsOf(in.cache.Lister)
	if !ok || in.report.Cost != nil || len(todo) == 0 {
		return
	}
	cost := &Cost{Listed: requests.Requests, Samples: int64(len(todo)), Bytes: total}
	m := in.cache.Manifest
	if in.sharded() {
		from := 0
		for _, end := range in.cut(todo) {
			piece := uint32(0) // of several samples at most MostTogether, and one has less than 4 GiB
			for ; from < end; from++ {
				piece += m.Size(todo[from])
			}
			cost.Gets += source.Gets(piece, nil)
		}
	} else {
		for _, index := range todo {
			cost.Gets += source.Gets(m.Size(index), m.Parts(index))
		}
	}
	in.setCost(cost)
}

func (in *run) setCost(cost *Cost) {
	in.report.Cost = cost
	if in.o.Cost != nil {
		in.o.Cost(*cost)
	}
}

// shardsCost is what shards over a network will cost that are not known yet: each is read for its index, and then for its samples. nil: the source is another one, or all
// indexes are kept.
func shardsCost(ctx context.Context, s source.Source, o Options) (*Cost, error) {
	v, err := source.SurveyOf(ctx, s, o.Share, o.Shares)
	if err != nil || v == nil || v.Index == 0 {
		return nil, err
	}
	requests, _ := source.RequestsOf(s)
	return &Cost{Listed: requests.Requests, Gets: v.Gets, Bytes: v.Bytes, Shards: v.Shards, Index: v.Index}, nil
}

// dryRun lists a source and reports what reading all of it would cost. Of shards over a network it asks for their sizes alone. It makes and changes nothing.
func dryRun(ctx context.Context, o Options) (report *Report, err error) {
	s, err := source.Open(o.Source, source.Options{Exts: o.Exts, Flat: o.Flat, Group: o.Group, Part: o.Part, Labels: o.Labels, Stream: o.Stream, AllowEmpty: o.AllowEmpty, Jobs: o.Jobs,
		NoFollowLinks: o.FollowLinks != nil && !*o.FollowLinks, Remote: o.Remote, Apart: o.Dirs})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	o.Progress(cache.Progress{Stage: "listing", Unit: "samples"})
	switch cost, err := shardsCost(ctx, s, o); {
	case err != nil:
		return nil, err
	case cost != nil:
		return &Report{Source: s.String(), Dirs: o.Dirs, Bytes: cost.Bytes, Cost: cost}, nil
	}
	listing, err := source.Relist(ctx, s, nil, func(n int) { o.Progress(cache.Progress{Stage: "listing", Done: int64(n), Unit: "samples"}) })
	if err != nil {
		return nil, err
	}
	cost := &Cost{}
	list := listing.Samples()
	for i := o.Share * list.Len() / o.Shares; i < (o.Share+1)*list.Len()/o.Shares; i++ {
		e := list.At(i)
		cost.Samples++
		cost.Bytes += int64(e.Size)
		cost.Gets += source.Gets(e.Size, e.Parts)
	}
	if requests, ok := source.RequestsOf(s); ok {
		cost.Listed = requests.Requests
	} else {
		cost.Gets = 0
	}
	return &Report{Source: s.String(), Dirs: o.Dirs, Samples: list.Len(), Classes: len(listing.Classes), Bytes: cost.Bytes, Cost: cost}, nil
}

// keptRemote is the settings of a remote source, with those that its cache has for what was not given.
func keptRemote(o Options) source.Remote {
	if len(o.Dirs) == 0 || !source.IsRemote(o.Source) {
		return o.Remote
	}
	was, err := cache.ReadRecord(o.Dirs[0])
	if err != nil || !source.Same(was.Source, o.Source) {
		return o.Remote
	}
	return o.Remote.Or(was.Remote)
}
