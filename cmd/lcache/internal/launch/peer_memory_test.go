package launch

import (
	"testing"

	"lcache/engine"
	"lcache/internal/cluster"
)

// TestBuffersOfManyMachines: what all streams may hold is within the memory between machines, whatever number of machines was expected, as long as the least part
// of each fits.
func TestBuffersOfManyMachines(t *testing.T) {
	for _, expect := range []int{0, 1, 3, 64} {
		for _, memory := range []int64{0, 64 << 20, 256 << 20} {
			o := &ClusterOptions{Options: cluster.Options{Expect: expect}, Memory: memory}
			left := o.memory() - o.memory()/engine.HomeShare
			for _, machines := range []int{1, 8, 9, 40} {
				send, receive := o.buffers(machines)
				if all := int64(machines) * (send + 2*int64(receive)); all > left {
					t.Errorf("%d machines, %d expected: %d bytes of %d", machines, expect, all, left)
				}
			}
			if few, many := sendOf(o, 1), sendOf(o, max(expect, manyMachines)+1); few < many {
				t.Errorf("%d expected: a stream has %d bytes, and %d with more machines", expect, few, many)
			}
		}
	}
}

func sendOf(o *ClusterOptions, machines int) int64 {
	send, _ := o.buffers(machines)
	return send
}
