package plan

// Run is a whole training: E epochs, and their write volume.
type Run struct {
	IngestS      float64 `json:"ingest_s"` // before the training, if the log is filled then
	FirstS       float64 `json:"first_s"`
	SteadyS      float64 `json:"steady_s"`
	LastS        float64 `json:"last_s"`
	RunS         float64 `json:"run_s"`
	WrittenBytes float64 `json:"written_bytes"` // per node
}

// Run returns the training with a policy. The first epoch reads the whole source and writes the samples that are
// kept. The last epoch writes nothing.
func (m *Model) Run(p Policy) Run { return m.runAt(p, m.f.Admit) }

func (m *Model) runAt(p Policy, admit float64) Run {
	e := m.epochAt(p, admit)
	r := Run{SteadyS: e.EpochS, LastS: m.lastEpoch(p, e)}
	prefill := m.f.Prefill && p != SourceOnly
	load, fill := m.loadSeconds(p, e.Hit), m.fillSeconds(p, e)
	switch {
	case prefill:
		r.IngestS = max(m.loadSeconds(SourceOnly, 0), fill)
		r.FirstS = r.SteadyS
	default:
		if m.f.Epochs < 2 {
			fill = 0
		}
		r.FirstS = max(load, fill, e.Seconds.Consumer, e.Seconds.Decode)
	}
	if m.f.Epochs < 2 {
		if prefill {
			r.FirstS = r.LastS
		}
		r.LastS = r.FirstS
		r.RunS = r.IngestS + r.FirstS
	} else {
		r.RunS = r.IngestS + r.FirstS + (m.f.Epochs-2)*r.SteadyS + r.LastS
	}
	r.WrittenBytes = m.written(p, max(e.Hit, e.Copies), prefill)
	return r
}

// loadSeconds returns how long it takes to read the whole dataset from the source once, over all nodes. Peers send the samples that they hold on to the
// nodes that consume them.
func (m *Model) loadSeconds(p Policy, hit float64) float64 {
	received := m.node
	if p.peers() {
		received += m.fromPeers(hit, hit)
	}
	return max(per(m.f.DatasetBytes, m.f.Source.BPS), per(m.node, m.f.Source.NodeBPS), per(m.f.Samples, m.f.Source.Ops), per(received, m.f.NetworkBPS))
}

// fillSeconds returns how long the disk takes to write the kept samples for the first time.
func (m *Model) fillSeconds(p Policy, e Epoch) float64 {
	request := e.BlockBytes
	if !p.arena() {
		request = m.stored
	}
	return m.f.Device.Seconds(Transfer{}, Transfer{e.Hit * m.node * m.f.StoredRatio, request})
}

// lastEpoch returns the time of an epoch that writes no next one.
func (m *Model) lastEpoch(p Policy, e Epoch) float64 {
	read, write, disk := m.traffic(p, e.Hit, e.BlockBytes, false)
	return max(disk.Seconds(read, write), e.Seconds.others())
}

// written returns the write volume of one node's drives over the whole training, if they hold so many times the bytes of an epoch of that node.
func (m *Model) written(p Policy, held float64, prefill bool) float64 {
	kept := held * m.node * m.f.StoredRatio
	if p.everywhere() {
		kept *= m.f.Nodes
	}
	times := m.f.Epochs - 1
	if prefill {
		times++
	}
	if !p.reorders() && p != TwoLogfile {
		times = min(times, 1)
	}
	return kept * times
}
