package sample

// An Origin is where the bytes of a sample came from. The order is that of distance: a later one costs more.
type Origin uint8

const (
	FromLog    Origin = iota // this machine's log
	FromMemory               // memory that keeps samples for importance (fetch.Holder)
	FromSource
	Origins // how many there are
)
