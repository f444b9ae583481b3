package state

import (
	"lcache/internal/disk/offheap"
	"lcache/internal/importance"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/substitute"
	"lcache/sample"
)

// drawAll draws the orders that must be known at the beginning of an epoch.
func (s *State) drawAll(epoch int) error {
	defer s.forgetFresh()
	if s.orders[epoch] == nil {
		if err := s.drawFor(epoch); err != nil {
			return err
		}
	}
	switch s.Config.Lag {
	case "1":
		if s.orders[epoch+1] == nil {
			return s.drawWhole(epoch + 1)
		}
	case Split:
		if s.low == nil || s.low.epoch != epoch+1 {
			return s.drawLow(epoch + 1)
		}
	}
	return nil
}

// drawFor draws an epoch that begins now: only the H part if the L part exists.
func (s *State) drawFor(epoch int) error {
	if s.low != nil && s.low.epoch == epoch {
		return s.fill()
	}
	s.dropLow()
	return s.drawWhole(epoch)
}

// boundary returns the Boundary that draws.
func (s *State) boundary() draw.Boundary {
	b := draw.Boundary{Scorer: s.scorer, Samples: len(s.data.Labels), Seed: s.Config.Seed, Draw: s.Config.Draw}
	if s.Config.Lag == "1" {
		b.Lag = 1
	}
	return b
}

// targets returns the Targets for this boundary's parameters.
func (s *State) targets() draw.Targets {
	m, _ := importance.Lookup(s.Config.Method) // the method is known to exist
	p := s.Config.Params
	p.Rep = s.rep.Allow(p.Rep)
	return m.Targets(p)
}

// hot returns the samples of greatest value that memory will hold, for methods that repeat them.
func (s *State) hot() (*sample.Set, error) {
	if s.rep.Allow(s.Config.Params.Rep) <= 1 {
		return nil, nil
	}
	if s.Held != nil {
		if held, err := s.Held(); held != nil || err != nil {
			return held, err
		}
	}
	return s.High()
}

// High returns the samples of greatest value that memory has room for: the H-list. The caller closes the set.
func (s *State) High() (*sample.Set, error) {
	values, err := s.Values()
	if err != nil {
		return nil, err
	}
	defer offheap.Free(values)
	return policy.Top(values, s.Config.Cache, func(i sample.Index) int64 { return int64(s.data.Sizes[i]) })
}

func (s *State) drawWhole(epoch int) error {
	b := s.boundary()
	if b.Plain(epoch) {
		return s.drawPlain(epoch)
	}
	hot, err := s.hot()
	if err != nil {
		return err
	}
	defer hot.Close()
	targets, uses, err := s.expected(b, hot)
	if err != nil {
		return err
	}
	indices, err := draw.Order(targets, s.Config.Seed, epoch, s.Config.Draw)
	offheap.Free(targets) // frees room for the plan of the served order, which needs as much
	if err != nil {
		offheap.Free(uses)
		return err
	}
	s.orders[epoch] = &Order{Epoch: epoch, Indices: indices, uses: uses}
	s.substitute(s.orders[epoch])
	return nil
}

// substitute plans the served order for a drawn one, which becomes the requested order.
func (s *State) substitute(o *Order) {
	if s.Serve == nil || s.Config.Substitute == "" {
		return
	}
	p, err := s.Serve(o.Epoch, o.Indices)
	if err != nil || len(p.Indices) != len(o.Indices) {
		s.log.Warn("cannot plan substitutes; the epoch has none", "name", s.Config.Name, "epoch", o.Epoch, "err", err)
		p.Close()
		return
	}
	o.Requested, o.Indices, o.Kinds = o.Indices, p.Indices, p.Kinds
	if s.Config.Substitute == substitute.Low {
		if err := s.evenLow(o.uses); err != nil {
			s.log.Warn("cannot equalize the uses of L-samples; weights follow the drawn order", "name", s.Config.Name, "epoch", o.Epoch, "err", err)
		}
	}
}

// evenLow gives all L-samples the same expected uses, because any of them may be served for any other.
func (s *State) evenLow(uses []float32) error {
	high, err := s.High()
	if err != nil {
		return err
	}
	defer high.Close()
	sum, n := 0.0, 0
	for i, u := range uses {
		if !high.Has(sample.Index(i)) {
			sum, n = sum+float64(u), n+1
		}
	}
	for i := range uses {
		if !high.Has(sample.Index(i)) {
			uses[i] = float32(sum / float64(n))
		}
	}
	return nil
}

// expected returns the expected uses of all samples, as targets, and in the compact form that is kept. Both are
// outside Go's heap.
func (s *State) expected(b draw.Boundary, hot *sample.Set) (targets []float64, uses []float32, err error) {
	if s.fresh != nil && hot == nil {
		targets, s.fresh = s.fresh, nil
	} else if targets, err = b.Expected(s.targets(), hot); err != nil {
		return nil, nil, err
	}
	if uses, err = narrow(targets); err != nil {
		offheap.Free(targets)
		return nil, nil, err
	}
	return targets, uses, nil
}

func (s *State) drawPlain(epoch int) (err error) {
	o := &Order{Epoch: epoch, Plain: true}
	if !s.recipe {
		if o.Indices, err = draw.Plain(len(s.data.Labels), s.Config.Seed, epoch); err != nil {
			return err
		}
	}
	s.orders[epoch] = o
	return nil
}

// drawLow draws the L part of an epoch, or all of a plain one.
func (s *State) drawLow(epoch int) error {
	s.dropLow()
	b := s.boundary()
	switch b.Lag = 1; {
	case s.orders[epoch] != nil:
		return nil
	case b.Plain(epoch): // the order is already known, so it can be laid out meanwhile
		return s.drawPlain(epoch)
	}
	high := s.nextHigh
	if s.nextHigh = nil; high == nil {
		var err error
		if high, err = s.High(); err != nil {
			return err
		}
	}
	defer high.Close()
	targets, uses, err := s.expected(b, nil)
	if err != nil {
		return err
	}
	defer offheap.Free(targets)
	length := draw.Length(targets)
	l := &lowPart{epoch: epoch, uses: uses}
	for i := range high.All {
		l.high = append(l.high, i)
		targets[i] = 0
	}
	if l.order, err = draw.LowPart(targets, length-draw.Length(targets), s.Config.Seed, epoch, s.Config.Draw); err != nil {
		offheap.Free(uses)
		return err
	}
	s.low = l
	return nil
}

// fill draws the open positions of the epoch that begins. It uses fresh values of H-samples, and of unstable samples
// that are not in the L part.
func (s *State) fill() (err error) {
	l := s.low
	if s.nextHigh, err = s.High(); err != nil { // first, while little memory is in use
		return err
	}
	if s.fresh, err = s.boundary().Expected(s.targets(), nil); err != nil {
		return err
	}
	fresh := s.fresh
	may, err := sample.NewSet(len(s.data.Labels))
	if err != nil {
		return err
	}
	defer may.Close()
	for _, i := range s.Unstable() {
		may.Add(i)
	}
	for _, i := range l.order {
		may.Remove(i)
	}
	for _, i := range l.high {
		may.Add(i)
	}
	open, err := offheap.Make[uint32]((len(l.order) + 31) / 32)
	if err != nil {
		return err
	}
	for k, i := range l.order {
		if i == sample.None {
			open[k/32] |= 1 << (k % 32)
		}
	}
	var high []sample.Index
	var targets []float64
	for i := range may.All {
		high, targets = append(high, i), append(targets, fresh[i])
		l.uses[i] = float32(fresh[i])
	}
	if err := draw.FillHigh(l.order, high, targets, s.Config.Seed, l.epoch, s.Config.Draw); err != nil {
		offheap.Free(open)
		return err
	}
	s.orders[l.epoch] = &Order{Epoch: l.epoch, Indices: l.order, Open: open, uses: l.uses}
	s.low = nil
	return nil
}

// forgetFresh frees data that fill has left for drawLow.
func (s *State) forgetFresh() {
	offheap.Free(s.fresh)
	s.nextHigh.Close()
	s.fresh, s.nextHigh = nil, nil
}

// Targets returns the expected uses of each sample in an epoch drawn now. The caller frees them with offheap.Free.
func (s *State) Targets() ([]float64, error) { return s.boundary().Expected(s.targets(), nil) }

// Uses returns the expected uses of each sample in a drawn or partly drawn epoch; nil: the epoch is plain, or not
// kept. The State owns the result until the epoch is over.
func (s *State) Uses(epoch int) []float32 {
	switch o := s.orders[epoch]; {
	case o != nil:
		return o.uses
	case s.low != nil && s.low.epoch == epoch:
		return s.low.uses
	}
	return nil
}

// narrow returns a copy of targets with half the bytes.
func narrow(targets []float64) ([]float32, error) {
	uses, err := offheap.MakeDense[float32](len(targets))
	for i := range uses {
		uses[i] = float32(targets[i])
	}
	return uses, err
}
