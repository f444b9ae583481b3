package engine

import (
	"fmt"
	"strings"

	"lcache/deliver"
	"lcache/surrogate"
)

// A server draws the orders of a job from what all of its ranks observe. Ranks on another machine observe to another server, which would draw orders of its own: some
// samples would be trained twice in an epoch, and others not.

// allHere reports whether a client's text says that all ranks of a training run on its machine. It refuses the text if only some do; false: the client doesn't know.
func allHere(text []byte, world int) (bool, error) {
	var said struct {
		Local *int `json:"local_world_size"`
	}
	err := surrogate.Unmarshal(text, &said)
	switch {
	case err != nil:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: %v", err)}
	case said.Local == nil:
		return false, nil
	case *said.Local < 1:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: local_world_size is %d: give how many ranks run on this machine, or null", *said.Local)}
	case *said.Local < world:
		return false, &deliver.ArgumentError{Reason: fmt.Sprintf("job.importance needs all ranks on one machine: %d in all, %d here", world, *said.Local)}
	}
	return true, nil
}

// warnAbsent warns once, at the first boundary that some ranks have not come to, unless all ranks run here: they may train on other machines. Only the worker calls it.
func (p *important) warnAbsent(to int) {
	p.mu.Lock()
	absent := p.positions.absent(to)
	p.mu.Unlock()
	if len(absent) > 0 {
		p.e.cache.Logger.Warn("the next epoch is drawn without ranks that have not ended this one: job.importance needs all ranks on one machine", "name", p.config.Name, "epoch", to, "world", p.world, "ranks", ranges(absent))
	}
}

// ranges writes ascending numbers as text, like 0-3,7.
func ranges(numbers []int) string {
	var b strings.Builder
	for first := 0; first < len(numbers); {
		last := first
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, numbers[first])
		if last > first {
			fmt.Fprint(&b, "-", numbers[last])
		}
		first = last + 1
	}
	return b.String()
}
