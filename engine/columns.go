package engine

import (
	"fmt"

	"lcache/internal/serve/deliver"
	"lcache/sample"
)

// Names returns the names of the first of the given samples: as many as take about room bytes in an answer, and at least one.
func (e *Engine) Names(indices []sample.Index, room int) (names []string, err error) {
	for _, index := range indices {
		if int(index) >= e.cache.Manifest.Len() {
			return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("index %d is not in the dataset of %d samples", index, e.cache.Manifest.Len())}
		}
		name, err := e.cache.Manifest.Name(index)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
		if room -= 4 + len(name); room < 0 {
			break
		}
	}
	return names, nil
}

// Labels returns the labels of count samples from the first one on. Callers must not change them.
func (e *Engine) Labels(first, count uint32) ([]int32, error) {
	n := e.cache.Manifest.Len()
	if end := uint64(first) + uint64(count); end > uint64(n) {
		return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("labels of samples %d to %d are not in the dataset of %d samples", first, end, n)}
	}
	return e.cache.Manifest.Labels()[first : first+count], nil
}

// Parts returns the parts of samples, limited as in Names. An entry is nil if the sample has no parts.
func (e *Engine) Parts(indices []sample.Index, room int) (parts [][]sample.Part, err error) {
	for _, index := range indices {
		if int(index) >= e.cache.Manifest.Len() {
			return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("index %d is not in the dataset of %d samples", index, e.cache.Manifest.Len())}
		}
		list := e.cache.Manifest.Parts(index)
		parts = append(parts, list)
		if room -= 4 + 8*len(list); room < 0 {
			break
		}
	}
	return parts, nil
}
