package plan

import "fmt"

// hysteresis is the additional saving that a log needs to replace the static layout. Measured epochs vary by a few
// per cent, and each change of the layout scans the whole log.
const hysteresis = 0.10

// waits is the share of an epoch that ranks must have waited for data. Otherwise the epoch does not show the speed of
// the disk.
const waits = 0.05

// Served is a delivered epoch, from which the layout is chosen again.
type Served struct {
	Layout  Policy  // Log or Static: how the epoch was read
	Seconds float64 // how long it took
	Stall   float64 // seconds of it in which a rank waited for data
	Left    float64 // epochs to come; 0: unknown
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

// Reconsider chooses the layout again after an epoch was served. The epoch's time without its waits shows the speed
// of the training loop. If the disk was the bottleneck, the epoch also shows the real speed of the disk, and both
// layouts are computed with it. The rule is that of Auto, with 10 % hysteresis for the current layout. Samples in
// place are reordered only if enough epochs are left to pay for it. f has the facts of the choice before, including the
// log's.
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

// slower returns how much longer the disk took than the facts predict; 1 if the epoch does not show it.
func (s Served) slower(by Seconds) float64 {
	waited := s.Stall > waits*s.Seconds && by.Disk >= by.Source
	if by.Disk <= 0 || !waited && by.Disk <= s.Seconds {
		return 1
	}
	return s.Seconds / by.Disk
}

// slowDisk multiplies the disk's time in an epoch.
func (e *Epoch) slowDisk(times float64) {
	e.Seconds.Disk *= times
	e.EpochS, e.BoundBy = e.Seconds.slowest()
	e.StallS = e.EpochS - e.Seconds.Consumer
}

// tooLittle returns why samples stay in place although the log's epochs are shorter; "": they should be reordered.
func (m *Model) tooLittle(a Advice, s Served) string {
	if a.Static.EpochS <= worthReordering*(1+hysteresis)*a.Log.EpochS {
		return "that is too little to change the layout"
	}
	if k := m.EpochsToReorder(); s.Left > 0 && s.Left < k {
		return fmt.Sprintf("that pays only with %.0f epochs left or more", k)
	}
	return ""
}

// EpochsLeft returns the number of epochs of a job that follow epoch after; 0 if the job's number of epochs is
// unknown.
func EpochsLeft(epochs, after int) float64 {
	return max(0, float64(epochs-after-1))
}
