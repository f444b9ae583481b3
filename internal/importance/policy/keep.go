package policy

import (
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// A Keeping is the input for choosing the samples that a log keeps for a drawn epoch, if it can't keep all.
type Keeping struct {
	MostUsed []sample.Index           // all samples, in descending order of expected uses
	Uses     []uint8                  // by sample: how often the epoch delivers it, at most 255
	InLog    func(sample.Index) bool  // reports whether the log holds a sample
	Arrives  func(sample.Index) bool  // reports whether a sample will come from the source before the epoch begins
	High     func(sample.Index) bool  // reports whether memory will have a sample, so that the epoch does not read it from the log
	Size     func(sample.Index) int64 // bytes in the log; 0: the log can't store it
	Room     int64                    // total bytes
	Most     int                      // maximum number of samples
}

// Classes of samples, best first. Classes below keepUnused are samples that the epoch delivers, by the number of
// uses. Of equal uses, samples in the log come before samples that must still be written.
const (
	keepUnused = 2*255 + iota // in the log, or coming; not delivered by the epoch
	keepHigh                  // memory will have them
	keepAbsent                // delivered, and read from the source in any case
	keepNever
	keepClasses
)

// class returns the class of a sample.
func (k *Keeping) class(i sample.Index) int {
	here := k.InLog(i)
	switch {
	case k.Size(i) <= 0:
		return keepNever
	case !here && !k.Arrives(i):
		if k.Uses[i] > 0 && !k.High(i) {
			return keepAbsent
		}
		return keepNever
	case k.High(i):
		return keepHigh
	case k.Uses[i] == 0:
		return keepUnused
	case here:
		return 2 * (255 - int(k.Uses[i]))
	}
	return 2*(255-int(k.Uses[i])) + 1
}

// Choose returns the samples that the log keeps: first the samples that the epoch delivers from it most often, then
// those with the most expected uses later. It skips samples that do not fit, and may still keep smaller ones. The
// caller closes the set.
func (k Keeping) Choose() (*sample.Set, error) {
	n := len(k.MostUsed)
	kept, err := sample.NewSet(n)
	if err != nil {
		return nil, err
	}
	classes, err := offheap.MakeDense[uint16](n)
	if err != nil {
		kept.Close()
		return nil, err
	}
	defer offheap.Free(classes)
	by, err := offheap.MakeDense[sample.Index](n)
	if err != nil {
		kept.Close()
		return nil, err
	}
	defer offheap.Free(by)
	var ends [keepClasses + 1]int
	for at, i := range k.MostUsed {
		classes[at] = uint16(k.class(i))
		ends[classes[at]+1]++
	}
	for c := range keepClasses {
		ends[c+1] += ends[c]
	}
	for at, i := range k.MostUsed {
		by[ends[classes[at]]] = i
		ends[classes[at]]++
	}
	room, most := k.Room, k.Most
	for _, i := range by[:ends[keepAbsent]] {
		if size := k.Size(i); size <= room && most > 0 {
			kept.Add(i)
			room, most = room-size, most-1
		}
	}
	return kept, nil
}
