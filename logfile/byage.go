package logfile

// ByAge lists the existing Logfiles, the older one first. The newer one is being filled, or holds samples that the older one no longer has.
func (s *Store) ByAge() (list []*Logfile) {
	for _, l := range s.Logfiles() {
		if l != nil {
			list = append(list, l)
		}
	}
	if len(list) == 2 && list[0].Generation() > list[1].Generation() {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

// HoldingByAge is ByAge without empty Logfiles.
func (s *Store) HoldingByAge() (list []*Logfile) {
	for _, l := range s.ByAge() {
		if !l.Empty() {
			list = append(list, l)
		}
	}
	return list
}
