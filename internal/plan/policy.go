package plan

// Policy says how an epoch gets its samples: where they live between epochs, and how they are read.
type Policy string

// The policies. The first three are what others do, for comparison; lcache builds Log, Static and, over several nodes,
// PeerLog and PeerStatic.
const (
	SourceOnly Policy = "source"      // nothing is kept
	MinIO      Policy = "minio"       // CoorDL: a fixed set of files, read as files
	TwoLogfile Policy = "two_logfile" // LCache §III: two Logfiles of half the budget each, written sample by sample
	Log        Policy = "log"         // reordered every epoch, read and written in blocks
	Static     Policy = "static"      // samples stay where they were packed, read by place
	OwnLog     Policy = "own_log"     // each of n nodes keeps what it will read next; not built: it shows what peers are worth
	PeerLog    Policy = "peer_log"    // a sample has one home; homes push to the node that consumes it
	PeerStatic Policy = "peer_static" // the same homes, read in place
)

// Policies are those that make sense on so many nodes, in the order of a table.
func Policies(nodes float64) []Policy {
	if nodes > 1 {
		return []Policy{SourceOnly, MinIO, TwoLogfile, Log, Static, OwnLog, PeerLog, PeerStatic}
	}
	return []Policy{SourceOnly, MinIO, TwoLogfile, Log, Static}
}

func (p Policy) peers() bool    { return p == PeerLog || p == PeerStatic }
func (p Policy) inPlace() bool  { return p == Static || p == PeerStatic }
func (p Policy) reorders() bool { return p == Log || p == OwnLog || p == PeerLog }
func (p Policy) arena() bool    { return p.inPlace() || p.reorders() }

// everywhere says that every node keeps the same set, whichever part of it an epoch has for that node.
func (p Policy) everywhere() bool { return p == Log || p == Static || p == MinIO }
