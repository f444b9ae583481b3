package ingest

import (
	"lcache/source"
)

// A FirstEpoch is what the first epoch of a training will ask shards over a network for, if no ingest fills the cache before: each sample takes a request of its
// own. An ingest reads neighbours together.
type FirstEpoch struct {
	Gets    int64 `json:"get_requests"`
	Ingest  int64 `json:"ingest_get_requests"` // of an ingest, for the same samples
	Samples int64 `json:"samples"`             // that the cache lacks
	Bytes   int64 `json:"bytes"`
}

// muchMore is how many times as many requests as an ingest are worth a warning.
const muchMore = 2

// firstEpoch returns what the missing samples cost in the first epoch; nil: an ingest would cost about as much.
func (in *run) firstEpoch() *FirstEpoch {
	if _, remote := source.RequestsOf(in.cache.Lister); !remote || !in.sharded() {
		return nil
	}
	todo, total, _ := in.lacking()
	if len(todo) == 0 {
		return nil
	}
	f := &FirstEpoch{Ingest: in.costOf(todo, total).Gets, Samples: int64(len(todo)), Bytes: total}
	for _, index := range todo {
		f.Gets += source.Gets(in.cache.Manifest.Size(index), nil)
	}
	if f.Gets < muchMore*f.Ingest {
		return nil
	}
	return f
}
