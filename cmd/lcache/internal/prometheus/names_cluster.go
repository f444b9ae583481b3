package prometheus

import (
	"reflect"

	"lcache/internal/serve/status"
)

func init() {
	add(ofCluster, map[string]about{
		"expected":       gauge("Machines that the first roster waits for; 0: not known."),
		"members":        gauge("lcache processes of the cluster that this server knows, itself included."),
		"roster_changes": counter("Changes of the set of machines that share the dataset."),
		"refused":        counter("Messages of machines with another key or version."),
	})
}

// cluster writes the part about other machines. A server that is in no cluster has only its state.
func (w writer) cluster(c status.Cluster) {
	w.states("cluster_state", "1 for the present state of this server among other machines: off, forming, alone, ok, degraded or refused.", labelState, c.State,
		status.ClusterOff, "forming", "alone", "ok", "degraded", "refused")
	if c.State == status.ClusterOff {
		return
	}
	w.object(ofCluster, reflect.ValueOf(c))
	by := map[string]int{"ok": 0, "lost": 0, "refused": 0}
	for _, p := range c.Peers {
		by[p.State]++
	}
	for state, n := range by {
		w.with(labelState, state).gauge("cluster_peers", "Machines that serve the dataset, by their state: ok, lost or refused.", float64(n))
	}
}
