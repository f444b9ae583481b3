package homes

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/zeebo/xxh3"
)

// vectors are written by python/tests/test_homes.py, a second implementation.
type vectors struct {
	MinusLog2 [][2]string `json:"minus_log2"` // hexadecimal
	Shards    [][3]any    // name, position, bin
	Cases     []struct {
		Peers []struct {
			ID     string
			Weight uint64
		}
		Loads      string // uneven or none
		Samples    int
		Thresholds []struct {
			Peer      int
			Room      uint64
			Threshold string
		}
		First []int    // homes of the first bins
		Homes string   // digest of all homes
		Ranks []string // digest of each peer's ranks
	}
}

// readVectors reads testdata/vectors.json, or the file that HOMES_VECTORS names.
func readVectors(t *testing.T) (v vectors) {
	b, err := os.ReadFile(cmp.Or(os.Getenv("HOMES_VECTORS"), "testdata/vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Cases) == 0 || len(v.MinusLog2) == 0 || len(v.Shards) == 0 {
		t.Fatal("the file has no vectors of one kind")
	}
	return v
}

func digest(numbers []uint16) string {
	var b []byte
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	return fmt.Sprintf("%016x", xxh3.Hash(b))
}

func TestVectors(t *testing.T) {
	v := readVectors(t)
	for _, pair := range v.MinusLog2 {
		var x uint64
		if _, err := fmt.Sscanf(pair[0], "%x", &x); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", minusLog2(x)); got != pair[1] {
			t.Errorf("minusLog2(%s) is %s, want %s", pair[0], got, pair[1])
		}
	}
	for _, s := range v.Shards {
		if got := BinOfShard(s[0].(string), uint64(s[1].(float64))); got != uint16(s[2].(float64)) {
			t.Errorf("position %v of %v is in bin %d, want %v", s[1], s[0], got, s[2])
		}
	}
	for _, c := range v.Cases {
		t.Run(fmt.Sprintf("%d peers, %s", len(c.Peers), c.Loads), func(t *testing.T) {
			ps, loads := make([]Peer, len(c.Peers)), make([]uint64, Bins)
			for i, p := range c.Peers {
				ps[i].Weight = p.Weight
				if n, err := hex.Decode(ps[i].ID[:], []byte(p.ID)); n != 16 || err != nil {
					t.Fatalf("%s is not an ID", p.ID)
				}
			}
			for b := range loads {
				if c.Loads == "uneven" {
					loads[b] = xxh3.Hash(binary.LittleEndian.AppendUint32(nil, uint32(b))) & 0xfffff
				}
			}
			all := make([]Sample, c.Samples)
			for i := range all {
				name := xxh3.HashString(fmt.Sprintf("sample-%06d", i))
				all[i] = Sample{BinOf(name), name, 4096 * (1 + name>>32%48)}
			}
			h := New(ps, loads)
			for bin, want := range c.First {
				if got := h.Home(uint16(bin)); got != want {
					t.Errorf("home of bin %d is %d, want %d", bin, got, want)
				}
			}
			if got := digest(h.home); got != c.Homes {
				t.Errorf("digest of the homes is %s, want %s", got, c.Homes)
			}
			ranks := make([][]uint16, len(ps))
			for p := range ps {
				ranks[p] = h.Ranks(p)
				if got := digest(ranks[p]); got != c.Ranks[p] {
					t.Errorf("digest of the ranks of peer %d is %s, want %s", p, got, c.Ranks[p])
				}
			}
			for _, want := range c.Thresholds {
				got, _ := largest(ranks[want.Peer], len(ps), all, want.Room)
				if fmt.Sprintf("%016x", uint64(got)) != want.Threshold {
					t.Errorf("threshold of peer %d with room for %d bytes is %016x, want %s", want.Peer, want.Room, uint64(got), want.Threshold)
				}
			}
		})
	}
}
