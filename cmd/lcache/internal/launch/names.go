package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"lcache/internal/cluster"
	"lcache/internal/serve/status"
	"lcache/internal/usage"
)

// A user may give a dataset a name (--dataset), for machines that have it in different places. Machines with one name share one listing. Each also offers
// its name with its fingerprint, so that all notice if there are several datasets behind the name. These go on apart, because machines share
// samples by fingerprint.

// mostName bounds a dataset's name, in bytes.
const mostName = 255

// CheckName returns an error if a text can't be the name of a dataset.
func CheckName(name string) error {
	for _, r := range name {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return usage.Errorf("--dataset %q: give a name of printable characters, such as imagenet-train", name)
		}
	}
	if len(name) > mostName {
		return usage.Errorf("--dataset: the name has %d bytes; give at most %d", len(name), mostName)
	}
	return nil
}

// datasetName returns the name of a source; "": it has none. Each of several sources has the name of the dataset and its own.
func (o *ClusterOptions) datasetName(s Source) string {
	if o == nil || o.Dataset == "" || s.Name == "" {
		if o == nil {
			return ""
		}
		return o.Dataset
	}
	return o.Dataset + "/" + s.Name
}

// nameKey is where machines find others with the same name.
func nameKey(name string) cluster.DatasetKey {
	sum := sha256.Sum256([]byte("lcache name\x00" + name))
	return cluster.DatasetKey(sum[:8])
}

// nameBytes is the part of a fingerprint in an offer of a name.
const nameBytes = 8

// nameID is what stands in place of a cache's identity: a part of the fingerprint, so that others see it, and one of the cache's identity.
func (l *link) nameID() (id cluster.CacheID) {
	copy(id[:nameBytes], l.share.Dataset[:])
	copy(id[nameBytes:], l.share.Cache[:])
	return id
}

// offerName offers the dataset's name, and warns of machines that have another dataset with it, until ctx ends.
func (l *link) offerName(ctx context.Context) {
	if err := l.of.Offer(cluster.Offer{Dataset: nameKey(l.name), Cache: l.nameID()}); err != nil {
		l.log.Warn("other machines can't see the name of the dataset", "name", l.name, "error", err)
		return
	}
	defer l.of.Withdraw(nameKey(l.name), l.nameID())
	warned := map[string]bool{} // by member
	for v := (*cluster.View)(nil); ; {
		if v = l.of.Newer(ctx, v); v == nil {
			return
		}
		for _, other := range l.others(v) {
			if of := other.ID + other.Address; !warned[of] {
				if len(warned) > mostAddresses {
					clear(warned)
				}
				warned[of] = true
				l.log.Warn(fmt.Sprintf("another machine has another dataset with the name of --dataset, so the two do not share samples: the fingerprint is %s there, and %s here; "+
					"compare the sources, or give them different names", other.ID, l.fingerprint()), "name", l.name, "host", other.Host, "peer", other.Address)
			}
		}
	}
}

// fingerprint returns the part of the dataset's fingerprint that other machines see.
func (l *link) fingerprint() string { return hex.EncodeToString(l.share.Dataset[:nameBytes]) }

// others lists the machines that have another dataset with the same name.
func (l *link) others(v *cluster.View) (all []status.ClusterOther) {
	if l.name == "" {
		return nil
	}
	own := l.nameID()
	for _, p := range v.Datasets[nameKey(l.name)].Peers {
		if p.State == cluster.PeerOK && [nameBytes]byte(p.Cache[:nameBytes]) != [nameBytes]byte(own[:nameBytes]) {
			all = append(all, status.ClusterOther{ID: hex.EncodeToString(p.Cache[:nameBytes]), Host: p.Host, Address: p.Address})
		}
	}
	return all
}
