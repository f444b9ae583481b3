package score

import (
	"math"

	"lcache/sample"
)

// Kinds of observations.
const (
	Losses      = 1 // the loss of each sample of a batch
	Counts      = 2 // the neighbours of each sample in embedding space
	Reevaluated = 3 // the loss of samples that the trainer was asked to evaluate again
)

// MaxSamples and MaxNeighbours bound one observation.
const (
	MaxSamples    = 65536
	MaxNeighbours = 65535
)

// Observation is the report of one rank about one batch. Slices that its Kind does not use are nil.
type Observation struct {
	Kind       uint8 // Losses, Counts or Reevaluated
	Rank       uint16
	Epoch      uint32
	Batch      uint32 // numbered by the client, from 0 in each epoch
	Index      []sample.Index
	Loss       []float32      // Losses and Reevaluated: one for each index
	Same       []uint16       // Counts: edges to samples of the same class, one for each index
	Other      []uint16       // Counts: edges to samples of other classes, one for each index
	Node       sample.Index   // Counts: the best connected sample of the batch, or sample.None
	Neighbours []sample.Index // Counts: samples of Node's class that have an edge to it, nearest first
}

// Report counts samples of observations by outcome.
type Report struct {
	Observed  int // accepted samples; a sample that is in a batch twice counts twice
	Unknown   int // indices beyond the manifest
	NotFinite int // losses that are NaN or infinite
	Stale     int // samples of an epoch that is too old, or has not begun
	Shape     int // whole observations with invalid lengths, or of a kind that the scorer does not accept
}

// Add returns the sum of two reports.
func (r Report) Add(o Report) Report {
	return Report{r.Observed + o.Observed, r.Unknown + o.Unknown, r.NotFinite + o.NotFinite, r.Stale + o.Stale, r.Shape + o.Shape}
}

// misshapen reports whether the lengths or the kind are invalid.
func (o *Observation) misshapen() bool {
	n := len(o.Index)
	if n == 0 || n > MaxSamples || len(o.Neighbours) > MaxNeighbours {
		return true
	}
	switch o.Kind {
	case Losses, Reevaluated:
		return len(o.Loss) != n
	case Counts:
		return len(o.Same) != n || len(o.Other) != n
	}
	return true
}

// finite reports whether a loss is a finite number.
func finite(loss float32) bool {
	return !math.IsNaN(float64(loss)) && !math.IsInf(float64(loss), 0)
}

// Once detects repeated observations. A client that lost its connection sends unconfirmed observations again, in the
// order of its batches. So Once remembers only the newest batch of each rank, epoch and kind, for at most two epochs.
type Once struct {
	newest map[from]uint32
}

type from struct {
	rank  uint16
	kind  uint8
	epoch uint32
}

// New reports whether an observation was not seen before, and records it.
func (o *Once) New(ob *Observation) bool {
	if o.newest == nil {
		o.newest = map[from]uint32{}
	}
	key := from{ob.Rank, ob.Kind, ob.Epoch}
	last, known := o.newest[key]
	if known && ob.Batch <= last {
		return false
	}
	o.newest[key] = ob.Batch
	return true
}

// Forget drops entries of epochs before epoch-1. Call it at each boundary, with the epoch that begins.
func (o *Once) Forget(epoch uint32) {
	for key := range o.newest {
		if key.epoch+1 < epoch {
			delete(o.newest, key)
		}
	}
}
