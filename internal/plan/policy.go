package plan

// Policy is a way to keep and read samples: where they are between epochs, and how they are read.
type Policy string

// The policies. lcache implements Log and Static, and over several nodes PeerStatic. The first three are other systems, for comparison.
const (
	SourceOnly Policy = "source"      // no cache
	MinIO      Policy = "minio"       // CoorDL: a fixed set of files is kept, and read as files
	TwoLogfile Policy = "two_logfile" // LCache §III: two Logfiles with half of the budget each, written sample by sample
	Log        Policy = "log"         // reordered every epoch, read and written in blocks
	Static     Policy = "static"      // samples stay where they were packed, and are read with random reads
	OwnLog     Policy = "own_log"     // each of n nodes keeps the samples that it will read next; not implemented: it shows how much peers gain
	PeerLog    Policy = "peer_log"    // each sample has one home node, which sends it to the node that consumes it; not implemented
	PeerStatic Policy = "peer_static" // the same homes, read in place
)

// Policies returns the policies that make sense on a number of nodes, in the order of a table.
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

// everywhere reports whether every node keeps the same set, whichever part of it an epoch has for that node.
func (p Policy) everywhere() bool { return p == Log || p == Static || p == MinIO }
