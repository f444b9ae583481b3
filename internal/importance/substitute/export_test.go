package substitute

// Each is each, for tests.
func (c Cut) Each(n int, f func(places []int)) { c.each(n, f) }
