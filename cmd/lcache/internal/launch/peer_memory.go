package launch

import (
	"cmp"

	"lcache/engine"
)

// DefaultPeerMemory is the memory for samples on their way between machines, in bytes. LeastPeerMemory is for each expected machine.
const (
	DefaultPeerMemory = 64 << 20
	LeastPeerMemory   = 1 << 20
)

// manyMachines is assumed if no number of machines is expected, unless there are more.
const manyMachines = 8

// memory returns the bytes for samples on their way between machines.
func (o *ClusterOptions) memory() int64 { return cmp.Or(o.Memory, DefaultPeerMemory) }

// buffers divides the memory that the engine leaves (engine.HomeShare): a quarter for what this machine sends, the rest for what it receives, for each stream
// of one of so many machines. gRPC lets a connection receive twice what a stream may.
func (o *ClusterOptions) buffers(machines int) (send int64, receive int32) {
	each := (o.memory() - o.memory()/engine.HomeShare) / int64(max(machines, cmp.Or(o.Expect, manyMachines)))
	return min(max(each/4, 256<<10), 4<<20), int32(min(max(each*3/8, 256<<10), 4<<20))
}

// largeSamples returns the bytes for samples that are larger than what a stream may send: as much as all streams have together.
func (o *ClusterOptions) largeSamples() int64 {
	return max((o.memory()-o.memory()/engine.HomeShare)/4, LeastPeerMemory)
}

// send returns the bytes that a new stream to another machine may hold until they are sent.
func (j *joined) send() int64 {
	send, _ := j.o.buffers(j.View().Members)
	return send
}

// receive returns the bytes that a stream of a new connection may receive ahead.
func (j *joined) receive() int32 {
	_, receive := j.o.buffers(j.View().Members)
	return receive
}
