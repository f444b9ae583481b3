package ingest

import (
	"lcache/source"
)

// A FirstEpoch is the number of requests of the first epoch to remote shards, if no ingest fills the cache first. Each sample then takes a
// request of its own. An ingest reads neighbours together.
type FirstEpoch struct {
	Gets    int64 `json:"get_requests"`
	Ingest  int64 `json:"ingest_get_requests"` // of an ingest, for the same samples
	Samples int64 `json:"samples"`             // that the cache lacks
	Bytes   int64 `json:"bytes"`
}

// muchMore is the ratio to an ingest's requests that causes a warning.
const muchMore = 2

// firstEpoch returns the cost of the missing samples in the first epoch; nil: an ingest would cost about as much.
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
