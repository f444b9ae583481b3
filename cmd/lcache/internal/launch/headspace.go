package launch

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"lcache/internal/jsonbytes"
)

// headspaceVariable names the file in which the loaders of the command note their halves of epochs. The Python client knows it.
const headspaceVariable = "LCACHE_HEADSPACE_NOTES"

// Headspace has the rates that a run measured for one loader of its command, in batches a second of the slowest rank. 0 means not measured.
type Headspace struct {
	Job   string  `json:"job"`                     // of the loader; "": it has none
	Best  float64 `json:"best_batches_per_second"` // with batches from memory
	Real  float64 `json:"real_batches_per_second"` // with the loader's own
	First bool    `json:"first_epoch"`             // only the first epoch was measured, which may have read the source
}

// headspaceNote is a line of the file: one epoch, or a part of one, of one rank of a loader. Each pair has batches and seconds.
type headspaceNote struct {
	Job  string     `json:"job"`
	Rank int        `json:"rank"`
	Real [2]float64 `json:"real"`
	Best [2]float64 `json:"best"`
}

// takeNotes makes the folder for the file of the notes.
func (r *run) takeNotes() error {
	dir, err := os.MkdirTemp("", "lcache-headspace-*")
	if err != nil {
		return fmt.Errorf("make a file for what loaders measure: %w", err)
	}
	r.notes = filepath.Join(dir, "notes")
	return nil
}

// headspace reads the notes. The command may have made none.
func (r *run) headspace() []Headspace {
	if !r.Headspace {
		return nil
	}
	loaders, err := readHeadspace(r.notes)
	if err != nil {
		r.Logger.Warn("cannot read the measurements of the loaders", "err", err)
	}
	return loaders
}

// readHeadspace adds up the notes of each loader, the loader with most batches first. A missing file has no notes.
func readHeadspace(path string) ([]Headspace, error) {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	type rank struct {
		job  string
		rank int
	}
	epochs := map[rank][]headspaceNote{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var n headspaceNote
		if jsonbytes.Unmarshal(lines.Bytes(), &n) == nil { // a process that was killed may leave half a line
			epochs[rank{n.Job, n.Rank}] = append(epochs[rank{n.Job, n.Rank}], n)
		}
	}
	loaders, batches := map[string]*Headspace{}, map[string]float64{}
	for who, notes := range epochs {
		h := Headspace{Job: who.job, First: len(notes) == 1}
		if len(notes) > 1 {
			notes = notes[1:] // the first one warms up, and fills the cache
		}
		var real, best [2]float64
		for _, n := range notes {
			real, best = [2]float64{real[0] + n.Real[0], real[1] + n.Real[1]}, [2]float64{best[0] + n.Best[0], best[1] + n.Best[1]}
		}
		h.Real, h.Best = perSecond(real), perSecond(best)
		batches[who.job] += real[0]
		if other := loaders[who.job]; other != nil {
			h.Real, h.Best, h.First = min(h.Real, other.Real), min(h.Best, other.Best), h.First || other.First
		}
		loaders[who.job] = &h
	}
	var all []Headspace
	for _, h := range loaders {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Headspace) int {
		return cmp.Or(cmp.Compare(batches[b.Job], batches[a.Job]), cmp.Compare(a.Job, b.Job))
	})
	return all, lines.Err()
}

func perSecond(of [2]float64) float64 {
	if of[1] <= 0 {
		return 0
	}
	return of[0] / of[1]
}
