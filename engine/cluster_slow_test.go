package engine

import (
	"sync"
	"testing"
	"time"

	"lcache/internal/testenv"
	"lcache/sample"
)

// throttle lets samples pass at a rate for each machine that sends.
type throttle struct {
	mu    sync.Mutex                  // guards the fields that follow
	rates map[*machineOfFleet]float64 // bytes a second
	next  map[*machineOfFleet]time.Time
}

// pass returns when a sample may pass. Its home sends nothing else meanwhile.
func (l *throttle) pass(from *machineOfFleet, bytes int) {
	l.mu.Lock()
	now := time.Now()
	at := l.next[from]
	if at.Before(now) {
		at = now
	}
	if l.rates[from] > 0 {
		at = at.Add(time.Duration(float64(bytes) / l.rates[from] * float64(time.Second)))
	}
	l.next[from] = at
	l.mu.Unlock()
	<-time.After(at.Sub(now))
}

func (l *throttle) set(rates map[*machineOfFleet]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rates, l.next = rates, map[*machineOfFleet]time.Time{}
}

// TestClusterSlowPeer: if one of two peers sends at a tenth of the other's rate, the machine that reads is as fast as before after a while, and says which
// peer is slow. If both do, nothing is read from the source.
func TestClusterSlowPeer(t *testing.T) {
	if !testenv.Timed() {
		t.Skip("it measures rates")
	}
	const rate = 4e6
	d := makeDataset(t, 1200, fileSizes)
	f := newFleet(t, d, samplerJob(200, 16, 3, true), 3, d.total*36/100+3<<20)
	defer f.close(t)
	f.read(t, 0)
	me, fast, slow := f.machines[0], f.machines[1], f.machines[2]
	l := &throttle{}
	l.set(map[*machineOfFleet]float64{fast: rate, slow: rate})
	f.mu.Lock()
	f.disturb = func(_, from *machineOfFleet, index sample.Index) wireFault {
		l.pass(from, len(d.bytes[index]))
		return noFault
	}
	f.mu.Unlock()
	c := attach(t, me.Engine)
	defer c.Disconnected()
	epoch := 1
	read := func(epochs int) time.Duration { // how much of one epoch each peer has is chance: many are compared
		began := time.Now()
		for range epochs {
			if _, err := d.readRank(me.Engine, c, epoch, 0, 0); err != nil {
				t.Fatal(err)
			}
			epoch++
		}
		return time.Since(began)
	}
	read(1)
	usual, before := read(40), f.sourceReads()
	l.set(map[*machineOfFleet]float64{fast: rate / 10, slow: rate / 10})
	read(1)
	if n := f.sourceReads() - before; n != 0 {
		t.Errorf("both peers are slow, and %d samples were read from the source", n)
	}
	l.set(map[*machineOfFleet]float64{fast: rate, slow: rate / 10})
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		read(1)
	}
	took := read(40)
	t.Logf("40 epochs take %v, and %v with one peer at a tenth: %.2f of the rate", usual, took, usual.Seconds()/took.Seconds())
	if took > usual*10/9 {
		t.Error("that is below 0.9 of the rate")
	}
	if loads := me.PeerLoads(); !loads[slow.name].IsSlow || loads[fast.name].IsSlow || loads[slow.name].Left == 0 || loads[fast.name].Left != 0 {
		t.Errorf("the peers are %+v", loads)
	}
}
