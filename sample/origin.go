package sample

// An Origin is where the bytes of a sample came from. A sample that came from several before it was delivered counts for the last of them in this order.
type Origin uint8

const (
	FromLog    Origin = iota // this machine's log
	FromMemory               // memory that keeps samples for importance (fetch.Holder)
	FromSource
	Origins // how many there are
)
