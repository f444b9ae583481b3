package sample

// An Origin is where the bytes of a sample came from. If a sample came from several origins before its delivery, the last of them in this order counts.
type Origin uint8

const (
	FromLog    Origin = iota // this machine's log
	FromMemory               // memory that keeps samples for importance (fetch.Holder)
	FromPeer                 // another machine of the cluster
	FromSource
	Origins // number of origins
)
