package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"lcache/chunker"
	"lcache/deliver"
	"lcache/sample"
	"lcache/shuffle"
)

// schedule gives the orders of every epoch and rank: replayed from a seed, or pushed by clients, whose word is the last.
type schedule struct {
	replay *shuffle.Replay // nil: no recipe
	job    Job
	n      int
	local  []int // ranks served here

	mu     sync.Mutex // guards the fields that follow
	pushed map[int]map[int][][]sample.Index
	since  map[int]time.Time // when the first of an epoch's orders was pushed
	told   map[int]int       // by epoch: how often a push changed its order
	gone   map[int]bool      // epochs whose pushed orders were dropped
	cache  map[int]*epochOrder
	recent []int // epochs in cache, oldest first
	making map[int]chan struct{}
	pusher map[rankEpoch]string // the session whose order counts for a rank and epoch, where there is a recipe, too

	recipeMu    sync.Mutex // guards the fields that follow, also while the order is made
	recipe      *epochOrder
	recipeEpoch int
}

type rankEpoch struct{ rank, epoch int }

type epochOrder struct {
	*chunker.Chunks
	ranks []int // that the order covers
	key   [16]byte
	told  int // the schedule's, of its epoch, when it was made
}

// errUnknownOrder: nobody has said yet what this epoch's order is.
var errUnknownOrder = &deliver.ArgumentError{Reason: "no order is known for this epoch: give the job a recipe and a batch size (--recipe and --batch-size of lcache run and lcache ingest, or of lcache.open), push one (job.push_order), or ask by index (job.get)"}

func newSchedule(j Job, n int) (*schedule, error) {
	s := &schedule{job: j, n: n, pushed: map[int]map[int][][]sample.Index{}, since: map[int]time.Time{}, cache: map[int]*epochOrder{}, making: map[int]chan struct{}{}, told: map[int]int{}, gone: map[int]bool{}, pusher: map[rankEpoch]string{}}
	world := max(j.World, 1)
	if err := j.check(); err != nil {
		return nil, err
	}
	if j.Recipe != "" {
		var err error
		if s.replay, err = shuffle.New(j.spec(n)); err != nil {
			return nil, err
		}
		world = max(world, s.replay.World())
	}
	s.local = slices.Clone(j.Ranks)
	if s.local == nil {
		for r := range world {
			s.local = append(s.local, r)
		}
	}
	slices.Sort(s.local)
	s.local = slices.Compact(s.local)
	for _, r := range s.local {
		if r < 0 || r >= world {
			return nil, &UsageError{fmt.Sprintf("rank %d does not exist in a world of %d: give --world-size %d or more, or ranks below %d", r, world, r+1, world)}
		}
	}
	return s, nil
}

// exists reports whether the job has that epoch.
func (s *schedule) exists(epoch int) bool {
	return epoch >= 0 && (s.job.Epochs == 0 || epoch < s.job.Epochs)
}

// isLocal reports whether a rank is served here. Without a recipe every rank that pushes is.
func (s *schedule) isLocal(rank int) bool {
	return slices.Contains(s.local, rank) || s.replay == nil && rank >= 0
}

// notServed is the error for a rank that the job does not have here. Most often the job was made without its world size.
func notServed(rank int, served []int) error {
	return &deliver.ArgumentError{Reason: fmt.Sprintf("rank %d is not served here, only %v: the job was made with another --world-size or --ranks than the training has", rank, served)}
}

// known reports whether an epoch's order could be made now.
func (s *schedule) known(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exists(epoch) && (s.replay != nil || len(s.pushed[epoch]) > 0)
}

// whole reports whether an epoch's order is known of all ranks here, or of some for so long that the others may not come.
func (s *schedule) whole(epoch int, patience time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exists(epoch) || s.replay != nil {
		return s.exists(epoch)
	}
	pushed := s.pushed[epoch]
	for _, r := range s.local {
		if pushed[r] == nil {
			return len(pushed) > 0 && time.Since(s.since[epoch]) > patience
		}
	}
	return true
}

// times is how often pushes have changed an epoch's order.
func (s *schedule) times(epoch int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told[epoch]
}

// keepOrders is how many epochs' orders stay in memory: the one before, the one read, the one written, the one after.
const keepOrders = 4

// order is an epoch's order. It takes a second or so at 14 M samples the first time; callers that ask meanwhile wait.
func (s *schedule) order(epoch int) (*epochOrder, error) {
	for {
		s.mu.Lock()
		if o := s.cache[epoch]; o != nil {
			s.mu.Unlock()
			return o, nil
		}
		if !s.exists(epoch) {
			s.mu.Unlock()
			return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("epoch %d does not exist: the job has %d", epoch, s.job.Epochs)}
		}
		if c := s.making[epoch]; c != nil {
			s.mu.Unlock()
			<-c
			continue
		}
		done := make(chan struct{})
		s.making[epoch] = done
		pushed, told := s.pushed[epoch], s.told[epoch]
		complete := len(pushed) > 0
		for _, r := range s.local {
			complete = complete && (pushed[r] != nil || s.replay == nil)
		}
		mine := make(map[int][][]sample.Index, len(pushed))
		for r, b := range pushed {
			mine[r] = b
		}
		s.mu.Unlock()
		var o *epochOrder
		var err error
		switch {
		case complete:
			o = pushedOrder(mine)
		case s.replay != nil:
			o, err = s.replayed(epoch)
		default:
			err = errUnknownOrder
		}
		s.mu.Lock()
		delete(s.making, epoch)
		again := s.told[epoch] != told
		if err == nil && !again {
			o.told = told
			s.cache[epoch] = o
			s.recent = append(s.recent, epoch)
			if len(s.recent) > keepOrders {
				delete(s.cache, s.recent[0])
				s.recent = s.recent[1:]
			}
		}
		s.mu.Unlock()
		close(done)
		if !again {
			return o, err
		}
	}
}

// current reports whether an order is still what its epoch's is.
func (s *schedule) current(epoch int, o *epochOrder) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.told == s.told[epoch]
}

func (s *schedule) replayed(epoch int) (*epochOrder, error) {
	global, err := s.replay.Global(epoch, nil)
	if err != nil {
		return nil, fmt.Errorf("replay epoch %d: %w", epoch, err)
	}
	split, err := s.replay.Split(epoch)
	if err != nil {
		return nil, fmt.Errorf("split epoch %d: %w", epoch, err)
	}
	h := xxh3.New()
	h.WriteString(s.replay.Key())
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(epoch)))
	return &epochOrder{Chunks: &chunker.Chunks{Global: global, Split: split}, ranks: s.local, key: h.Sum128().Bytes()}, nil
}

// push takes a rank's order for an epoch from a session; from "" it is for all of them. changed: the epoch's order is another one with it; replaced: because the rank, or the recipe, said
// another one before.
func (s *schedule) push(session string, epoch, rank int, batches [][]sample.Index, n int) (changed, replaced bool, err error) {
	if !s.exists(epoch) {
		return false, false, &deliver.ArgumentError{Reason: fmt.Sprintf("epoch %d does not exist: the job has %d", epoch, s.job.Epochs)}
	}
	if !s.isLocal(rank) {
		return false, false, notServed(rank, s.local)
	}
	for b, batch := range batches {
		for _, index := range batch {
			if int(index) >= n {
				return false, false, &deliver.ArgumentError{Reason: fmt.Sprintf("index %d in batch %d of the pushed order is not in the dataset of %d samples", index, b, n)}
			}
		}
	}
	if batches == nil {
		batches = [][]sample.Index{}
	}
	same := s.says(epoch, rank, batches)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replay != nil && (!same || s.pushed[epoch][rank] != nil) {
		s.pusher[rankEpoch{rank, epoch}] = session
	}
	if same {
		return false, false, nil
	}
	if s.pushed[epoch] == nil {
		s.pushed[epoch], s.since[epoch] = map[int][][]sample.Index{}, time.Now()
	}
	_, said := s.pushed[epoch][rank]
	s.pushed[epoch][rank] = batches
	delete(s.gone, epoch)
	s.told[epoch]++
	if _, ok := s.cache[epoch]; ok {
		delete(s.cache, epoch)
		s.recent = slices.DeleteFunc(s.recent, func(e int) bool { return e == epoch })
	}
	return true, said || s.replay != nil, nil
}

// says reports whether a rank's order for an epoch is just that already, pushed or by the recipe.
func (s *schedule) says(epoch, rank int, batches [][]sample.Index) bool {
	s.mu.Lock()
	before, said := s.pushed[epoch][rank]
	gone := s.gone[epoch]
	s.mu.Unlock()
	if said || gone || s.replay == nil {
		return said && slices.EqualFunc(before, batches, slices.Equal)
	}
	o, err := s.order(epoch)
	if err != nil || !slices.Contains(o.ranks, rank) || o.Batches(rank) != len(batches) {
		return false
	}
	var mine []sample.Index
	for b, batch := range batches {
		if mine, _ = o.Chunk(rank, b, mine[:0]); !slices.Equal(mine, batch) {
			return false
		}
	}
	return true
}

// keepPushed is how many epochs' pushed orders are kept.
const keepPushed = 16

// forget drops pushed orders once an epoch is over, the oldest first, if there are many. They are not replaced by the recipe's
// order: whoever asks for one again is told to push it again.
func (s *schedule) forget(over int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pushed) > keepPushed {
		oldest := over
		for epoch := range s.pushed {
			oldest = min(oldest, epoch)
		}
		if oldest == over {
			return
		}
		s.gone[oldest] = true
		delete(s.pushed, oldest)
		delete(s.since, oldest)
	}
}

// chunk is what a rank asks for at a position. A pushed rank's own word counts even if the other ranks have not pushed.
func (s *schedule) chunk(at deliver.Position) (*epochOrder, []sample.Index, bool, error) {
	s.mu.Lock()
	batches, pushed := s.pushed[at.Epoch][at.Rank]
	gone := s.gone[at.Epoch]
	s.mu.Unlock()
	if gone {
		return nil, nil, false, &deliver.ArgumentError{Reason: fmt.Sprintf("the order pushed for epoch %d is not kept any more: push it again", at.Epoch)}
	}
	if pushed {
		if at.Batch < 0 || at.Batch >= len(batches) {
			return nil, nil, false, nil
		}
		return nil, batches[at.Batch], true, nil
	}
	o, err := s.order(at.Epoch)
	if err != nil {
		return nil, nil, false, err
	}
	if !slices.Contains(o.ranks, at.Rank) {
		return nil, nil, false, notServed(at.Rank, o.ranks)
	}
	indices, ok := o.Chunk(at.Rank, at.Batch, nil)
	return o, indices, ok, nil
}

// meant is what a session asks for by a position alone: the order that it pushed itself, else the recipe's, which no other job's push changes.
// Without a recipe it is the order that any session pushed.
func (s *schedule) meant(session string, at deliver.Position) ([]sample.Index, bool, error) {
	s.mu.Lock()
	pusher, pushed := s.pusher[rankEpoch{at.Rank, at.Epoch}]
	s.mu.Unlock()
	if !pushed || pusher == session || pusher == "" {
		_, indices, ok, err := s.chunk(at)
		return indices, ok, err
	}
	o, err := s.ofRecipe(at.Epoch)
	if err != nil {
		return nil, false, err
	}
	indices, ok := o.Chunk(at.Rank, at.Batch, nil)
	return indices, ok, nil
}

// ofRecipe is an epoch's order as the recipe has it, whatever was pushed. One is kept.
func (s *schedule) ofRecipe(epoch int) (o *epochOrder, err error) {
	s.recipeMu.Lock()
	defer s.recipeMu.Unlock()
	if s.recipe == nil || s.recipeEpoch != epoch {
		if o, err = s.replayed(epoch); err != nil {
			return nil, err
		}
		s.recipe, s.recipeEpoch = o, epoch
	}
	return s.recipe, nil
}

// batches is how many chunks a rank has in an epoch.
func (s *schedule) batches(epoch, rank int) int {
	s.mu.Lock()
	batches, pushed := s.pushed[epoch][rank]
	s.mu.Unlock()
	if pushed {
		return len(batches)
	}
	o, err := s.order(epoch)
	if err != nil || !slices.Contains(o.ranks, rank) {
		return 0
	}
	return o.Batches(rank)
}

// explicit is the split of pushed orders: batches of any sizes, in steps over the ranks.
type explicit struct {
	starts map[int][]uint64 // by rank: where each batch begins in the global order
	sizes  map[int][]int
}

func (x *explicit) Batches(rank int) int { return len(x.starts[rank]) }

func (x *explicit) Positions(rank, batch int, dst []uint64) []uint64 {
	dst = dst[:0]
	for i := range x.sizes[rank][batch] {
		dst = append(dst, x.starts[rank][batch]+uint64(i))
	}
	return dst
}

func pushedOrder(pushed map[int][][]sample.Index) *epochOrder {
	var ranks []int
	steps := 0
	for r, batches := range pushed {
		ranks = append(ranks, r)
		steps = max(steps, len(batches))
	}
	slices.Sort(ranks)
	x := &explicit{starts: map[int][]uint64{}, sizes: map[int][]int{}}
	o := &epochOrder{Chunks: &chunker.Chunks{Split: x}, ranks: ranks}
	h := xxh3.New()
	for t := range steps {
		for _, r := range ranks {
			if t >= len(pushed[r]) {
				continue
			}
			x.starts[r] = append(x.starts[r], uint64(len(o.Global)))
			x.sizes[r] = append(x.sizes[r], len(pushed[r][t]))
			o.Global = append(o.Global, pushed[r][t]...)
		}
	}
	h.WriteString("pushed")
	var b [4]byte
	for _, index := range o.Global {
		binary.LittleEndian.PutUint32(b[:], index)
		h.Write(b[:])
	}
	o.key = h.Sum128().Bytes()
	return o
}

// canonical is the order of a source stored without a recipe.
func canonical(n int) *epochOrder {
	global := make([]sample.Index, n)
	for i := range global {
		global[i] = sample.Index(i)
	}
	x := &explicit{starts: map[int][]uint64{0: {0}}, sizes: map[int][]int{0: {n}}}
	return &epochOrder{Chunks: &chunker.Chunks{Global: global, Split: x}, ranks: []int{0}, key: xxh3.HashString128("canonical").Bytes()}
}
