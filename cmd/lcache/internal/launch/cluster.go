package launch

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"lcache/internal/cluster"
	"lcache/internal/serve/status"
	"lcache/sample"
)

// join makes this process a member of the cluster. Without options it returns nil, and nothing of a cluster runs.
func join(ctx context.Context, o *cluster.Options) (*cluster.Member, error) {
	if o == nil {
		return nil, nil
	}
	return cluster.Start(ctx, *o)
}

// leave ends join.
func leave(m *cluster.Member) error {
	if m == nil {
		return nil
	}
	return m.Close()
}

// offer sends the capacity of the server's cache to the other members.
func (l *local) offer() error {
	if l.member == nil {
		return nil
	}
	s := l.engine.Share()
	l.dataset, l.cache = datasetKey(s.Dataset), s.Cache
	o := cluster.Offer{Dataset: l.dataset, Cache: s.Cache, Weight: cluster.WeightOf(s.Room, s.Bytes)}
	if s.IsLog {
		o.Flags |= cluster.FlagLog
	}
	return l.member.Offer(o)
}

func datasetKey(f sample.Fingerprint) cluster.DatasetKey { return cluster.DatasetKey(f[:8]) }

// clusterStatus returns the function by which an engine describes the cluster; nil: there is none.
func clusterStatus(m *cluster.Member) func(sample.Fingerprint) status.Cluster {
	if m == nil {
		return nil
	}
	return func(f sample.Fingerprint) status.Cluster { return describe(m.View(), datasetKey(f), time.Now()) }
}

// describe is the part of the status document about one dataset.
func describe(v *cluster.View, key cluster.DatasetKey, now time.Time) status.Cluster {
	d := v.Datasets[key]
	c := status.Cluster{State: string(d.State), Listen: v.Listen, Expected: d.Expected, Members: v.Members, Rosters: d.Changes, Refused: int64(v.Refused), Reason: v.LastRefusal}
	if v.Refused > 0 {
		c.ReasonSeconds = max(0, now.Sub(v.RefusedAt).Seconds())
	}
	if c.State == "" { // the member has not looked yet
		c.State = string(cluster.Forming)
	}
	if d.Roster != nil {
		c.Roster = fmt.Sprintf("%016x", d.Roster.Hash())
	}
	for _, p := range d.Peers {
		layout := "static"
		if p.Flags&cluster.FlagLog != 0 {
			layout = "log"
		}
		c.Peers = append(c.Peers, status.ClusterPeer{ID: hex.EncodeToString(p.Cache[:]), Host: p.Host, Address: p.Address, Version: p.Program, State: string(p.State),
			StateSeconds: max(0, now.Sub(p.Since).Seconds()), Layout: layout, InRoster: p.InUse, RoomShare: float64(p.Weight) / cluster.WeightAll})
	}
	return c
}
