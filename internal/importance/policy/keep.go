package policy

import (
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// A Keeping is what the choice depends on which samples a log keeps of a drawn epoch, where it can't keep all.
type Keeping struct {
	MostUsed []sample.Index           // all samples, those of most expected uses first
	Uses     []uint8                  // by sample: how often the epoch delivers it; 255 means that often or more
	Here     func(sample.Index) bool  // reports whether the log holds a sample
	Comes    func(sample.Index) bool  // reports whether it comes from the source before the epoch begins
	High     func(sample.Index) bool  // reports whether memory will hold it, so that the epoch does not want it of the log
	Size     func(sample.Index) int64 // in the log; 0: the log can't take it
	Room     int64                    // bytes that the log has for all of them
	Most     int                      // samples
}

// Classes of samples, best first. Before them are those that the epoch delivers, by how often, and those that are in the log before those that have to be written.
const (
	keepUnused = 2*255 + iota // that are here or come, and are not delivered
	keepHigh                  // that memory will hold
	keepAbsent                // that are delivered, and have to come from the source in any case
	keepNever
	keepClasses
)

// class is the class of a sample.
func (k *Keeping) class(i sample.Index) int {
	here := k.Here(i)
	switch {
	case k.Size(i) <= 0:
		return keepNever
	case !here && !k.Comes(i):
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

// Choose chooses what the log keeps: what the epoch delivers from it most often, then what is expected to be delivered most often after that. What does not fit is left out, and smaller ones behind it may fit. The caller closes the set.
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
