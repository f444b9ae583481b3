package plan

import "fmt"

// hysteresis is how much more than the rule asks a log must save, for a cache that is static to become one. A measured
// epoch varies by some per cent, and each change of mind costs a pass over all that is held.
const hysteresis = 0.10

// waits is the share of an epoch that ranks must have waited for data, for the epoch to say how fast the disk is.
const waits = 0.05

// Served is an epoch that a server has delivered, by which the layout is chosen again.
type Served struct {
	Layout  Policy  // Log or Static: how the epoch was read
	Seconds float64 // how long it took
	Stall   float64 // of them, in which a rank waited for data
	Left    float64 // epochs that are still to come; 0: not known
}

func (s Served) check() error {
	switch {
	case s.Layout != Log && s.Layout != Static:
		return fmt.Errorf("layout is %q, and must be %q or %q", s.Layout, Log, Static)
	case !(s.Seconds > 0 && s.Seconds <= largest):
		return fmt.Errorf("seconds is %g, and must lie between 0 and %g", s.Seconds, largest)
	case !(s.Stall >= 0 && s.Stall <= largest):
		return fmt.Errorf("stall is %g, and must lie between 0 and %g", s.Stall, largest)
	case !(s.Left >= 0 && s.Left <= largest):
		return fmt.Errorf("left is %g, and must lie between 0 and %g", s.Left, largest)
	}
	return nil
}

// Reconsider chooses the layout again, by an epoch that was served. It says what the training consumes by itself, which is
// its time without the waiting; and, where the disk bound it, how fast the disk really is: both layouts are held to that.
// The rule is that of Auto, with 10 % hysteresis for what is in place. Samples in place are brought into an order only if
// enough epochs are left to pay for it. f are the facts that the layout was chosen by; those of the log that samples lie in are among them.
func Reconsider(f Facts, s Served) (Advice, error) {
	if err := s.check(); err != nil {
		return Advice{}, err
	}
	f.AsHeld, f.ConsumerBPS = true, 0
	if own := s.Seconds - s.Stall; own > s.Seconds/1e6 {
		f.ConsumerBPS = min(largest, f.DatasetBytes/max(1, f.Nodes)/own)
	}
	m, err := New(f)
	if err != nil {
		return Advice{}, err
	}
	a := Advice{Log: m.Epoch(Log), Static: m.Epoch(Static)}
	was := a.Log
	if s.Layout == Static {
		was = a.Static
	}
	if slower := s.slower(was.Seconds); slower != 1 {
		a.Log.slowDisk(slower)
		a.Static.slowDisk(slower)
	}
	a.LogEpochS, a.StaticEpochS = a.Log.EpochS, a.Static.EpochS
	if a.Layout, a.Reason = m.byJob(a); a.Layout == "" || f.Epochs == 1 {
		a.Layout, a.Reason = m.byTime(a)
		if s.Layout == Static && a.Layout == Log {
			a.Remark = m.tooLittle(a, s)
		}
		if a.Remark != "" {
			a.Layout, a.Reason = Static, a.Reason+"; "+a.Remark
		}
	}
	m.byWear(&a, Log)
	if a.Layout == Log {
		a.WritesPerDay = a.Log.WritesPerDay()
	}
	return a, nil
}

// slower is how much longer the disk took than the facts say: 1 where the epoch does not tell.
func (s Served) slower(by Seconds) float64 {
	waited := s.Stall > waits*s.Seconds && by.Disk >= by.Source
	if by.Disk <= 0 || !waited && by.Disk <= s.Seconds {
		return 1
	}
	return s.Seconds / by.Disk
}

// slowDisk makes the disk's part of an epoch longer.
func (e *Epoch) slowDisk(times float64) {
	e.Seconds.Disk *= times
	e.EpochS, e.BoundBy = e.Seconds.slowest()
	e.StallS = e.EpochS - e.Seconds.Consumer
}

// tooLittle says why samples in place stay there although the log's epochs are shorter; "": they do not.
func (m *Model) tooLittle(a Advice, s Served) string {
	if a.Static.EpochS <= worthReordering*(1+hysteresis)*a.Log.EpochS {
		return "that is too little to begin with it"
	}
	if k := m.EpochsToReorder(); s.Left > 0 && s.Left < k {
		return fmt.Sprintf("that pays only with %.0f epochs left or more", k)
	}
	return ""
}

// EpochsLeft is how many epochs of a job come after one; 0 where the job does not say how many it has.
func EpochsLeft(epochs, after int) float64 {
	return max(0, float64(epochs-after-1))
}
