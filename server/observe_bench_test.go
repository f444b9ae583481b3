package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/internal/importance/score"
	"lcache/sample"
)

// BenchmarkObserveFrames covers all of the server's work for observations, from the socket to the values: frames as clients send them, 16 at a time. It should take at most 0.1 CPU-s per million of them. The samples
// of a large dataset are far from each other in memory, which costs more: BenchmarkObserve of package importance measures that.
func BenchmarkObserveFrames(b *testing.B) {
	for _, job := range []string{`"method":"impact","params":{"s_share":0}`, `"method":"shade"`, `"method":"spider"`} {
		for _, batch := range []int{256, 1024} {
			b.Run(fmt.Sprintf("%s/%d", job, batch), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				s := start(b, testEngine(b, nil), nil)
				c := attach(b, s, "")
				c.importance(`{"lag":0,` + job + `}`)
				kind := uint8(score.Losses)
				if job == `"method":"spider"` {
					kind = score.Counts
				}
				index := make([]uint32, batch)
				for k := range index {
					index[k] = uint32(k*7) % testSamples
				}
				const burst = 16
				o := score.Observation{Kind: kind, Index: index, Node: sample.None}
				if kind == score.Losses {
					o.Loss = make([]float32, batch)
					for k := range o.Loss {
						o.Loss[k] = float32(k*31%101) / 10
					}
				} else {
					o.Same, o.Other = make([]uint16, batch), make([]uint16, batch)
				}
				one := finish(append(begin(nil, typeObserve, 0), observation(o)...), 0)
				frames := bytes.Repeat(one, burst)
				next, used := uint32(0), cpuOf(b, unix.RUSAGE_SELF)-cpuOf(b, unix.RUSAGE_THREAD)
				for b.Loop() {
					for k := range burst {
						binary.LittleEndian.PutUint32(frames[k*len(one)+headerBytes+8:], next) // the batch
						next++
					}
					c.write(frames)
					if next%(1<<20/uint32(batch)) == 0 { // the queue is bounded: wait until most of it is processed
						c.ask(typeWeights, columnOf(0, 1, 0))
					}
				}
				st := c.status()
				used = cpuOf(b, unix.RUSAGE_SELF) - cpuOf(b, unix.RUSAGE_THREAD) - used
				if st.ObservationsDropped != 0 {
					b.Errorf("%d observations were dropped", st.ObservationsDropped)
				}
				b.ReportMetric(used/float64(int(next)*batch)*1e6, "cpu-s/million")
			})
		}
	}
}

func cpuOf(b *testing.B, who int) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
