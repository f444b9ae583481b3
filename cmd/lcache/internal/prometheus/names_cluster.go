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

		"corrupt_samples": counter("Samples that came from other machines with wrong bytes, and were read again."),
		"skipped_samples": counter("Samples that came from other machines and were not stored here, because the disk was busy."),

		"unassigned_bytes": gauge("Bytes on disk of samples that now belong to other machines."),
		"crowded":          gauge("1 if samples that belong to other machines take a notable part of the cache's room."),
		"source_bytes":     counter("Bytes read from the source for other machines."),
		"source_reads":     counter("Samples read from the source for other machines."),
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
	by := map[string]int{"ok": 0, "slow": 0, "late": 0, "aside": 0, "lost": 0, "refused": 0}
	for _, p := range c.Peers {
		by[p.State]++
	}
	for state, n := range by {
		w.with(labelState, state).gauge("cluster_peers", "Machines that serve the dataset, by their state: ok, slow, late, aside, lost or refused.", float64(n))
	}
	w.peers(c.Peers)
}

// mostPeers bounds the values of the label peer.
const mostPeers = 64

// peers writes what this server exchanges with each other machine. Its label is the machine's host, and the address too if several have that host.
func (w writer) peers(all []status.ClusterPeer) {
	hosts, isDone := map[string]int{}, map[string]bool{}
	for _, p := range all {
		hosts[p.Host]++
	}
	for i, p := range all {
		label := p.Host
		if hosts[label] > 1 {
			label += " " + p.Address
		}
		if i == 0 || isDone[label] || len(isDone) == mostPeers { // the first is this machine
			continue
		}
		isDone[label] = true
		of := w.with(labelPeer, label)
		of.gauge("peer_up", "1 if the machine answers, else 0.", map[bool]float64{true: 1}[p.State == "ok" || p.State == "slow" || p.State == "aside"])
		of.counter("peer_in_bytes_total", "Bytes of samples from the machine to this one.", float64(p.InBytes))
		of.counter("peer_out_bytes_total", "Bytes of samples from this machine to it.", float64(p.OutBytes))
		of.counter("peer_out_parcels_total", "Messages with samples from this machine to it.", float64(p.OutParcels))
		of.counter("peer_late_samples_total", "Samples requested from the machine, and read from elsewhere because it did not answer in time.", float64(p.LateSamples))
		of.counter("peer_slow_samples_total", "Samples due of the machine, and read from the source because it is slow.", float64(p.SlowSamples))
		of.counter("peer_absent_samples_total", "Samples requested from the machine that it did not have.", float64(p.AbsentSamples))
	}
}
