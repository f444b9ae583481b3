package ingest

import (
	"context"

	"lcache/internal/store/cache"
	"lcache/sample"
	"lcache/source"
)

// tellCost reports the cost of the missing samples of a remote source, before the first of them is read.
func (in *run) tellCost(todo []sample.Index, total int64) {
	if _, ok := source.RequestsOf(in.cache.Lister); ok && in.report.Cost == nil && len(todo) > 0 {
		in.setCost(in.costOf(todo, total))
	}
}

// costOf returns the cost of reading some samples of the source. Requests to a directory are not counted.
func (in *run) costOf(todo []sample.Index, total int64) *Cost {
	cost := &Cost{Samples: int64(len(todo)), Bytes: total}
	requests, ok := source.RequestsOf(in.cache.Lister)
	if !ok {
		return cost
	}
	cost.Listed = requests.Requests
	m := in.cache.Manifest
	if in.sharded() {
		from := 0
		for _, end := range in.cut(todo) {
			piece := uint32(0) // a piece has at most MostTogether samples if it has several, and a sample has less than 4 GiB
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
	return cost
}

func (in *run) setCost(cost *Cost) {
	in.report.Cost = cost
	if in.o.Cost != nil {
		in.o.Cost(*cost)
	}
}

// shardsCost returns the cost of reading remote shards whose indexes the cache does not have: each is read for its index, and then for its
// samples. nil: the source has no shards, or the cache has all indexes.
func shardsCost(ctx context.Context, s source.Source, o Options) (*Cost, error) {
	v, err := source.SurveyOf(ctx, s, o.Share, o.Shares)
	if err != nil || v == nil || v.Index == 0 {
		return nil, err
	}
	requests, _ := source.RequestsOf(s)
	return &Cost{Listed: requests.Requests, Gets: v.Gets, Bytes: v.Bytes, Shards: v.Shards, Index: v.Index}, nil
}

// keptRemote returns the settings of a remote source. Settings that are not given come from its cache.
func keptRemote(o Options) source.Remote {
	if len(o.Dirs) == 0 || !source.IsRemote(o.Source) {
		return o.Remote
	}
	was, err := cache.ReadRecord(o.Dirs[0])
	if err != nil || !source.SameAs(o.Source, was.Source, was.Identity) {
		return o.Remote
	}
	return o.Remote.Or(was.Remote)
}
