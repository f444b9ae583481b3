package cluster

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"lcache/internal/cluster/homes"
)

func full() *announcement {
	a := &announcement{protocol: 3, dataPort: 7746, started: time.UnixMilli(1790000000123), host: strings.Repeat("h", mostHost), program: strings.Repeat("v", mostProgram)}
	for i := range mostDatasets {
		a.offers = append(a.offers, Offer{Dataset: DatasetKey{byte(i), 1}, Cache: CacheID{byte(i), 2}, Threshold: homes.One*2 + 5, Weight: WeightAll, Flags: FlagLog})
	}
	return a
}

func TestAnnouncementsFit(t *testing.T) {
	for _, a := range []*announcement{full(), {started: time.UnixMilli(0)}} {
		b := a.encode()
		if len(b) > 512 {
			t.Errorf("memberlist takes 512 bytes, and these are %d", len(b))
		}
		got, err := decodeAnnouncement(b)
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v was read as %+v, %v", a, got, err)
		}
		if got, err := decodeAnnouncement(append(b, "what a later version adds"...)); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("with bytes of a later version: %+v, %v", got, err)
		}
	}
	a := &announcement{host: strings.Repeat("long", 100), started: time.UnixMilli(0)}
	if got, err := decodeAnnouncement(a.encode()); err != nil || len(got.host) != mostHost {
		t.Errorf("a long name: %v", err)
	}
}

func TestWeightMovesInSteps(t *testing.T) {
	const gb = 1 << 30
	for _, c := range []struct {
		room, dataset uint64
		want          uint16
	}{{0, gb, 0}, {gb, gb, WeightAll}, {5 * gb, gb, WeightAll}, {gb/2 + 12345, gb, WeightAll / 2}, {gb / 2000, gb, 1}, {100, 100, WeightAll}, {7, 0, 0}} {
		if got := WeightOf(c.room, c.dataset); got != c.want {
			t.Errorf("room for %d of %d bytes has weight %d, want %d", c.room, c.dataset, got, c.want)
		}
	}
}

func TestBadAnnouncements(t *testing.T) {
	good := full().encode()
	for n := range len(good) {
		if a, err := decodeAnnouncement(good[:n]); err == nil {
			t.Fatalf("%d of %d bytes: %+v", n, len(good), a)
		}
	}
	change := func(at int, to byte) []byte {
		b := append([]byte{}, good...)
		b[at] = to
		return b
	}
	heavy := &announcement{offers: []Offer{{Weight: WeightAll + 1}}}
	greedy := &announcement{offers: []Offer{{Threshold: math.MaxUint64}}}
	for name, b := range map[string][]byte{"magic": change(0, 'x'), "version": change(2, 9), "host": change(14, 255), "weight": heavy.encode(), "threshold": greedy.encode()} {
		if a, err := decodeAnnouncement(b); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func FuzzAnnouncement(f *testing.F) {
	f.Add(full().encode())
	f.Add((&announcement{host: "n1", program: "0.1"}).encode())
	f.Add([]byte("lc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAnnouncement(b)
		if err != nil {
			return
		}
		again, err := decodeAnnouncement(a.encode())
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Errorf("%+v was written and read as %+v, %v", a, again, err)
		}
	})
}
