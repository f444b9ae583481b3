package score

import "testing"

func TestOnce(t *testing.T) {
	var o Once
	say := func(rank uint16, epoch, batch uint32, kind uint8) bool {
		return o.New(&Observation{Rank: rank, Epoch: epoch, Batch: batch, Kind: kind})
	}
	for k, c := range []struct {
		rank         uint16
		epoch, batch uint32
		kind         uint8
		want         bool
	}{
		{0, 0, 0, Losses, true}, {0, 0, 0, Losses, false}, {0, 0, 3, Losses, true}, {0, 0, 2, Losses, false}, {1, 0, 0, Losses, true},
		{0, 0, 0, Reevaluated, true}, {0, 1, 0, Losses, true}, {0, 0, 3, Losses, false}, {0, 0, 4, Losses, true},
	} {
		if got := say(c.rank, c.epoch, c.batch, c.kind); got != c.want {
			t.Errorf("observation %d: new %v, want %v", k, got, c.want)
		}
	}
	for e := range uint32(100) {
		for rank := range uint16(8) {
			say(rank, e, 0, Losses)
		}
		o.Forget(e)
		if len(o.newest) > 8*2+3 {
			t.Fatalf("%d entries are kept in epoch %d", len(o.newest), e)
		}
	}
}
