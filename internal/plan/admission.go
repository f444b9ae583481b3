package plan

// halvings is how often a bisection halves its interval: after that many, floats have no more digits.
const halvings = 100

// BestAdmission returns the share of the dataset with which an epoch of a policy is shortest, and that epoch. It can be less than what fits, because
// disk and source work at the same time, and a slow disk may leave more to the source.
func (m *Model) BestAdmission(p Policy) (admit float64, e Epoch) {
	e = m.epochAt(p, m.f.Admit)
	if e.Seconds.Disk <= e.Seconds.others() {
		return e.Hit, e
	}
	lo, hi := 0.0, e.Hit
	for range halvings {
		mid := (lo + hi) / 2
		if at := m.epochAt(p, mid); at.Seconds.Disk > at.Seconds.others() {
			hi = mid
		} else {
			lo = mid
		}
	}
	if at := m.epochAt(p, lo); at.EpochS < e.EpochS {
		e = at
	}
	return e.Hit, e
}

// SmallestCache returns the smallest budget with which the best epoch of a policy is within 2 % of the best with any budget; 0 if the policy gains
// nothing by a cache.
func (m *Model) SmallestCache(p Policy) float64 {
	best := func(budget float64) float64 {
		_, e := m.with(func(f *Facts) { f.CacheBytes = budget }).BestAdmission(p)
		return e.EpochS
	}
	hi := 4*Padded(m.f.DatasetBytes*m.f.StoredRatio, m.f.Samples) + 256*m.f.BlockBytes
	goal := 1.02 * best(hi)
	if best(0) <= goal {
		return 0
	}
	lo := 0.0
	for range halvings {
		mid := (lo + hi) / 2
		if best(mid) <= goal {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}
