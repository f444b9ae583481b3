package schedule

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/zeebo/xxh3"

	"lcache/chunker"
	"lcache/sample"
	"lcache/shuffle"
)

// An Order is the order of one epoch.
type Order struct {
	*chunker.Chunks
	Ranks   []int    // ranks that the order covers, ascending
	Key     [16]byte // equal for equal orders, in every process
	version int      // the version of the epoch when the order was made
}

// orderCache has the orders that are made, and those in the making. Schedule.mu guards it.
type orderCache struct {
	orders map[int]*Order
	recent []int // epochs in orders, least recently used first
	needed []int // epochs whose orders are not evicted
	making map[int]*making
	last   int             // the last epoch made by replay; -1: none
	side   *making         // the order that is made apart; nil: none
	apart  *shuffle.Replay // a second replay of a sequential recipe, for orders made apart; nil until it is needed
	recipe []*making       // the recipe's orders of epochs for which another order was pushed, least recently used first
}

// making is an order that is being made.
type making struct {
	epoch int
	done  chan struct{} // closed once the fields that follow are set
	order *Order
	err   error
	stale bool // a push has changed the order meanwhile
}

// keepOrders is the number of epochs whose orders stay in memory: the previous one, the one that is read, the one that is written, and
// the next one. Ranks in different epochs need more, at most mostOrders. An order takes 4 bytes a sample.
const (
	keepOrders = 4
	mostOrders = 8
)

// In a sequential recipe each epoch continues the random numbers of the epoch before, so an epoch far ahead needs all epochs between.
// MostDrawn bounds the samples that may be drawn for an epoch if the job's number of epochs is unknown; that many take some minutes.
// nearby is the distance, in epochs, up to which an epoch is not far.
const (
	MostDrawn = 1 << 33
	nearby    = 8
)

// errBusy means that an order is being made apart, and that a second one would have to wait for it.
var errBusy = errors.New("another order is being made")

// BeforeMaking calls f before each order that is made from now on. It is for tests, as is IsMakingAside.
func (s *Schedule) BeforeMaking(f func(epoch int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// IsMakingAside reports whether an order is being made apart.
func (s *Schedule) IsMakingAside() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.side != nil
}

// A reason is the use of an order.
type reason uint8

const (
	toRead    reason = iota // to read or to lay out the epoch
	toCompare               // to compare with a pushed order
	forHint                 // to look up the position that a client names with its request
)

// Order returns an epoch's order. Making one takes about a second at 14 M samples. Callers that ask for an order in the making wait for it.
func (s *Schedule) Order(ctx context.Context, epoch int) (*Order, error) {
	return s.find(ctx, epoch, toRead)
}

// find returns an order for a reason. An order that is not needed for reading, or that takes long, is made apart, one at a time, so that
// readers of other epochs do not wait for it.
func (s *Schedule) find(ctx context.Context, epoch int, why reason) (*Order, error) {
	for {
		s.mu.Lock()
		if o := s.orders[epoch]; o != nil {
			s.recent = append(slices.DeleteFunc(s.recent, func(e int) bool { return e == epoch }), epoch)
			s.mu.Unlock()
			return o, nil
		}
		m := s.making[epoch]
		if m == nil {
			if err := s.mayMake(epoch); err != nil {
				s.mu.Unlock()
				return nil, err
			}
			switch aside := why != toRead || s.isFar(epoch); {
			case aside && s.side != nil && why == forHint:
				s.mu.Unlock()
				return nil, errBusy
			case aside && s.side != nil:
				m = s.side
			default:
				m = s.start(epoch, aside)
			}
		}
		s.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("the order of epoch %d is being made: %w", epoch, ctx.Err())
		}
		if m.epoch == epoch && !m.stale {
			return m.order, m.err
		}
	}
}

// ofRecipe returns the recipe's order of an epoch, even if another one was pushed.
func (s *Schedule) ofRecipe(ctx context.Context, epoch int) (*Order, error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.recipe, func(m *making) bool { return m.epoch == epoch })
	var m *making
	if i >= 0 {
		m = s.recipe[i]
		s.recipe = slices.Delete(s.recipe, i, i+1)
	} else {
		if err := s.mayReplay(epoch); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		m = &making{epoch: epoch, done: make(chan struct{})}
		s.makers.Go(func() {
			m.order, m.err = s.replayed(s.replay, epoch)
			close(m.done)
		})
	}
	s.recipe = append(s.recipe, m)
	if len(s.recipe) > keepOrders {
		s.recipe = slices.Delete(s.recipe, 0, 1)
	}
	s.mu.Unlock()
	select {
	case <-m.done:
		return m.order, m.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the order of epoch %d is being made: %w", epoch, ctx.Err())
	}
}

// mayMake returns an error for an epoch without an order, and for an order that would take too long. s.mu is held.
func (s *Schedule) mayMake(epoch int) error {
	if !s.stopped && s.exists(epoch) && !s.look(epoch).state.isKnown() {
		return errUnknownOrder
	}
	return s.mayReplay(epoch)
}

// mayReplay is mayMake for the recipe's order, even if that is held back. s.mu is held.
func (s *Schedule) mayReplay(epoch int) error {
	switch {
	case s.stopped:
		return ErrStopped
	case !s.exists(epoch):
		return s.noEpoch(epoch)
	case s.replay != nil && s.replay.Sequential() && s.job.Epochs == 0 && epoch > MostDrawn/max(s.n, 1):
		return refuse("epoch %d is too far: with %s all earlier ones are drawn first; give --epochs if the job has that many", epoch, s.job.Recipe)
	}
	return nil
}

// isFar reports whether an epoch's order needs the random numbers of many other epochs. s.mu is held.
func (s *Schedule) isFar(epoch int) bool {
	if s.replay == nil || !s.replay.Sequential() {
		return false
	}
	near := func(e int) bool { return epoch >= e && epoch <= e+nearby }
	return !near(0) && !near(s.last) && !slices.ContainsFunc(s.needed, near)
}

// start starts to make an order. s.mu is held.
func (s *Schedule) start(epoch int, aside bool) *making {
	m := &making{epoch: epoch, done: make(chan struct{})}
	s.making[epoch] = m
	replay := s.replay
	if aside {
		s.side = m
		if replay != nil && replay.Sequential() {
			if s.apart == nil {
				s.apart, m.err = shuffle.New(s.spec)
			}
			replay = s.apart
		}
	}
	e, before := s.look(epoch), s.before
	var ranks map[int]*rankOrder // nil: the order is the recipe's
	if e.state.isOfRanks() {
		ranks = maps.Clone(e.ranks)
	}
	s.makers.Go(func() {
		var o *Order
		err := m.err
		if before != nil {
			before(epoch)
		}
		switch {
		case err != nil:
		case ranks != nil:
			o = orderOf(ranks)
		default:
			o, err = s.replayed(replay, epoch)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.making, epoch)
		if aside {
			s.side = nil
		} else if ranks == nil && err == nil {
			s.last = epoch
		}
		m.order, m.err, m.stale = o, err, s.look(epoch).version != e.version
		if err == nil && !m.stale {
			o.version = e.version
			s.keepOrder(epoch, o)
		}
		close(m.done)
	})
	return m
}

// keepOrder adds an order to the cache, and evicts the least recently used orders that are not needed. s.mu is held.
func (s *Schedule) keepOrder(epoch int, o *Order) {
	s.orders[epoch] = o
	s.recent = append(s.recent, epoch)
	for len(s.recent) > max(keepOrders, min(len(s.needed)+1, mostOrders)) {
		i := slices.IndexFunc(s.recent, func(e int) bool { return e != epoch && !slices.Contains(s.needed, e) })
		s.dropOrder(s.recent[max(i, 0)])
	}
}

// dropOrder removes an order from the cache. s.mu is held.
func (s *Schedule) dropOrder(epoch int) {
	delete(s.orders, epoch)
	s.recent = slices.DeleteFunc(s.recent, func(e int) bool { return e == epoch })
}

// SetNeeded sets the epochs that are read and laid out. Their orders stay in memory.
func (s *Schedule) SetNeeded(epochs []int) {
	slices.Sort(epochs)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needed = slices.Compact(append(s.needed[:0], epochs...))
}

// AddNeeded adds an epoch that a rank has just begun, until the next SetNeeded.
func (s *Schedule) AddNeeded(epoch int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.needed, epoch) && len(s.needed) < mostOrders {
		s.needed = append(s.needed, epoch)
	}
}

// IsCurrent reports whether an order is still its epoch's order: no push has changed it since the order was made.
func (s *Schedule) IsCurrent(epoch int, o *Order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.version == s.look(epoch).version
}

// replayed replays an epoch's order from the recipe.
func (s *Schedule) replayed(replay *shuffle.Replay, epoch int) (*Order, error) {
	global, err := replay.Global(epoch, nil)
	if err != nil {
		return nil, fmt.Errorf("replay epoch %d: %w", epoch, err)
	}
	split, err := replay.Split(epoch)
	if err != nil {
		return nil, fmt.Errorf("split epoch %d: %w", epoch, err)
	}
	h := xxh3.New()
	h.WriteString(replay.Key())
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(epoch)))
	return &Order{Chunks: &chunker.Chunks{Global: global, Split: split}, Ranks: s.local, Key: h.Sum128().Bytes()}, nil
}

// explicit is the split of pushed orders: batches of any size, in steps over the ranks.
type explicit struct {
	starts map[int][]uint64 // by rank: the position of each batch in the global order
	sizes  map[int][]int    // by rank: the samples of each batch
}

func (x *explicit) Batches(rank int) int { return len(x.starts[rank]) }

func (x *explicit) Positions(rank, batch int, dst []uint64) []uint64 {
	dst = dst[:0]
	for i := range x.sizes[rank][batch] {
		dst = append(dst, x.starts[rank][batch]+uint64(i))
	}
	return dst
}

// orderOf makes the order of an epoch from the orders of its ranks.
func orderOf(parts map[int]*rankOrder) *Order {
	var ranks []int
	steps := 0
	for r, g := range parts {
		ranks = append(ranks, r)
		steps = max(steps, g.batches())
	}
	slices.Sort(ranks)
	x := &explicit{starts: map[int][]uint64{}, sizes: map[int][]int{}}
	o := &Order{Chunks: &chunker.Chunks{Split: x}, Ranks: ranks}
	h := xxh3.New()
	for t := range steps {
		for _, r := range ranks {
			if t >= parts[r].batches() {
				continue
			}
			batch := parts[r].batch(t)
			x.starts[r] = append(x.starts[r], uint64(len(o.Global)))
			x.sizes[r] = append(x.sizes[r], len(batch))
			o.open(parts[r], t, len(o.Global), len(batch))
			o.Global = append(o.Global, batch...)
		}
	}
	h.WriteString("pushed")
	var b [4]byte
	for k, index := range o.Global {
		if o.isOpen(k) { // the key is the same before and after it is known
			index = sample.None
		}
		binary.LittleEndian.PutUint32(b[:], index)
		h.Write(b[:])
	}
	o.Key = h.Sum128().Bytes()
	return o
}

// open marks the open positions of a rank's batch, which begins at position at.
func (o *Order) open(g *rankOrder, batch, at, n int) {
	if g.open == nil {
		return
	}
	from := int(g.ends[batch]) - n
	for k := range n {
		if g.isOpen(from + k) {
			for len(o.Open) <= (at+k)/64 {
				o.Open = append(o.Open, 0)
			}
			o.Open[(at+k)/64] |= 1 << ((at + k) % 64)
		}
	}
}

func (o *Order) isOpen(k int) bool { return k/64 < len(o.Open) && o.Open[k/64]&(1<<(k%64)) != 0 }

// canonicalKey is the key of the canonical order of every dataset.
var canonicalKey = xxh3.HashString128("canonical").Bytes()

// IsCanonical reports whether a key is the key of the canonical order.
func IsCanonical(key [16]byte) bool { return key == canonicalKey }

// Canonical returns the canonical order of n samples. A source is stored in this order if no epoch's order is known.
func Canonical(n int) *Order {
	global := make([]sample.Index, n)
	for i := range global {
		global[i] = sample.Index(i)
	}
	x := &explicit{starts: map[int][]uint64{0: {0}}, sizes: map[int][]int{0: {n}}}
	return &Order{Chunks: &chunker.Chunks{Global: global, Split: x}, Ranks: []int{0}, Key: canonicalKey}
}
