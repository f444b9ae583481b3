package engine

import (
	"fmt"
	"testing"
	"time"

	"lcache/internal/testenv"
)

// TestModelWithPackages is TestModel for a job whose L-samples may be substituted for each other, and which owns the log for most of the time. Packages are begun, filled, emptied and begun again, while plain jobs
// sometimes own the log, with requests by index, restarts and damage. Served samples follow the law of substitutes, and are the same before and after a restart.
func TestModelWithPackages(t *testing.T) {
	testenv.Long(t)
	runs, replaced, packed, cleaned := 0, 0, int64(0), int64(0)
	eachModel(t, 30, testenv.Pick(4, 2), func(m *model, ops int) {
		m.runWithPackages(ops)
		runs, replaced, packed, cleaned = runs+1, replaced+m.replaced, packed+m.packed, cleaned+m.cleaned
	})
	t.Logf("%d samples were replaced, %d packages begun; %d bytes were moved out of packages and Logfiles", replaced, packed, cleaned)
	if runs >= 4 && (replaced == 0 || packed == 0) { // one run in ten has hardly a batch, or no room
		t.Error("nothing was put to the test")
	}
}

// runWithPackages lets an importance job train some epochs before anything else happens.
func (m *model) runWithPackages(ops int) {
	m.opts.LateEpoch = 100 * time.Millisecond
	m.start()
	share := m.d.total * int64(1+m.r.IntN(3)) / 10
	m.importance = fmt.Sprintf(`{"seed":%d,"cache":%d,"batch_size":%d,"world_size":%d,"drop_last":%v,"method":"impact","substitute":"low","lag":%d,"params":{"s_share":%v,"l_depth":%d,"warmup":1}}`,
		m.r.Uint32(), min(share, max(m.e.spareMemory()/2, 0)), m.job.BatchSize, m.job.World, m.job.DropLast, m.r.IntN(4)/3, []float64{0, 0.1}[m.r.IntN(2)], 1+m.r.IntN(3))
	m.beginImportant()
	for m.drawing != nil && m.drawing.at.Epoch < 3 && m.drawing.twin.Epoch() < m.job.Epochs-1 {
		m.readImportant()
	}
	for range ops {
		switch p := m.r.IntN(100); {
		case p < 60:
			m.important()
		case p < 64:
			for range m.r.IntN(30) {
				m.batch(m.r.IntN(len(m.at)))
			}
		case p < 68:
			m.other()
		case p < 80:
			m.get()
		case p < 86:
			m.release()
		case p < 89:
			m.jump()
		case p < 91:
			m.leave()
		case p < 95:
			m.damage()
		default:
			m.restart()
		}
	}
	m.checkHeld()
	m.stop()
}
