package main

import (
	"strings"
	"testing"

	"lcache/internal/serve/status"
)

func TestClusterText(t *testing.T) {
	d := status.Document{Jobs: []status.Job{{Name: "train", DatasetBytes: 138e9}}, Cluster: status.Cluster{State: "degraded", Listen: "10.0.0.1:7747", Refused: 3, Reason: "10.0.0.9 has another key, or none", ReasonSeconds: 12, Dataset: "train", Fingerprint: "00112233aabbccdd", Others: []status.ClusterOther{{ID: "8899aabb00112233", Host: "gpu-07", Address: "10.0.0.7:7747"}}, Unassigned: 31e9, IsCrowded: true,
		Peers: []status.ClusterPeer{
			{Host: "gpu-01", State: "ok", RoomShare: 1, Layout: "static", KeepBytes: 46e9, Copies: 1.34, Address: "10.0.0.1:7747", InRoster: true},
			{Host: "gpu-02", State: "lost", StateSeconds: 12.3, RoomShare: 0.4, Layout: "static", KeepBytes: 46e9, Copies: 1, InBytes: 12e9, OutBytes: 3e9, LateSamples: 212, Address: "10.0.0.2:7747", InRoster: true},
			{Host: "gpu-04", State: "slow", RoomShare: 1, Layout: "static", KeepBytes: 46e9, InBytes: 1e9, OutBytes: 3e9, SlowSamples: 1200, Address: "10.0.0.4:7747", InRoster: true},
			{Host: "gpu-05", State: "aside", RoomShare: 1, Layout: "static", Address: "10.0.0.5:7747", InRoster: true},
			{Host: "gpu\x1b[31m", State: "refused", RoomShare: 0.4, Layout: "static", Address: "10.0.0.3:7747"},
		}}}
	want := strings.TrimPrefix(`
cluster  3 of 4 machines · train · 138 GB · keeps 46 GB (1.3 copies) · listens on 10.0.0.1:7747
  machine          state   room  keeps     in   out  late        address
  gpu-01 *            ok  100 %  46 GB      –     –     –  10.0.0.1:7747
  gpu-02       lost 12 s   40 %  46 GB  12 GB  3 GB   212  10.0.0.2:7747
  gpu-04            slow  100 %  46 GB   1 GB  3 GB     0  10.0.0.4:7747
  gpu-05           aside  100 %    0 B    0 B   0 B     0  10.0.0.5:7747
  gpu\x1b[31m    refused   40 %    0 B    0 B   0 B     0  10.0.0.3:7747
! gpu-07 (10.0.0.7:7747) has another dataset with the name train: the fingerprint is 8899aabb00112233 there, and 00112233aabbccdd here, so each goes on alone; compare the sources, or give them different names
! 31 GB of samples that belong to other machines now take a part of this cache's room: if the machines stay as they are, stop the server, run lcache rm on the cache, and start again
! gpu-02 (10.0.0.2:7747) has not answered for 12 s: after --peer-grace the roster is made without it
! gpu-04 (10.0.0.4:7747) brings its samples at less than half of the rate of the others: a part of them, 1,200 so far, is read from the source; look at its disk and its network
! gpu-05 (10.0.0.5:7747) has sent wrong bytes for several samples: it is asked for nothing for a minute; check its memory and its network
! gpu\x1b[31m (10.0.0.3:7747) says that it has the same cache as gpu-01 (10.0.0.1:7747): one of them is a copy; run lcache rm on the copy, and ingest again
! 3 messages were refused, the last one 12 s ago: 10.0.0.9 has another key, or none
`, "\n")
	if got := clusterText(d); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestClusterLine(t *testing.T) {
	for want, c := range map[string]status.Cluster{
		"":                            {State: "off"},
		"looking for other machines":  {State: "forming"},
		"waiting for 2 of 3 machines": {State: "forming", Expected: 3, Peers: []status.ClusterPeer{{State: "ok"}}},
		"no other machine":            {State: "alone", Peers: []status.ClusterPeer{{State: "ok"}}},
		"2 of 2 machines":             {State: "ok", Peers: []status.ClusterPeer{{State: "ok"}, {State: "ok"}, {State: "refused"}}},
		"takes no part: another machine says that it has this cache": {State: "refused"},
		"1 of 4 machines": {State: "degraded", Expected: 4, Peers: []status.ClusterPeer{{State: "ok"}, {State: "lost"}}},
	} {
		if got := clusterLine(c); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestClusterSummary(t *testing.T) {
	d := status.Document{Jobs: []status.Job{{HitsPeer: 74, SamplesDelivered: 100, SourceBytes: 10e9}, {}}, Cluster: status.Cluster{SourceBytes: 24.5e9, Peers: []status.ClusterPeer{{}, {LateSamples: 3}, {LateSamples: 2}}}}
	if got, want := clusterSummary(d), "3 machines · 74 % from other machines · source 35 GB by this one · 5 late"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.Cluster.Peers, d.Jobs[0].HitsPeer = nil, 0
	if got := clusterSummary(d); got != "" {
		t.Errorf("alone: %q", got)
	}
}
