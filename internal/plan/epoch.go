package plan

// Seconds are how long each resource is busy in an epoch. They work at the same time.
type Seconds struct {
	Disk     float64 `json:"disk"`
	Source   float64 `json:"source"`
	Network  float64 `json:"network"`
	Decode   float64 `json:"decode"`
	Consumer float64 `json:"consumer"`
}

// others returns the time of the slowest resource other than the disk.
func (s Seconds) others() float64 { return max(s.Source, s.Network, s.Decode, s.Consumer) }

// slowest returns the time of the epoch and the bottleneck. If several are equal, it is the consumer.
func (s Seconds) slowest() (float64, string) {
	most, name := s.Consumer, "consumer"
	for _, other := range []struct {
		name    string
		seconds float64
	}{{"disk", s.Disk}, {"source", s.Source}, {"network", s.Network}, {"decode", s.Decode}} {
		if other.seconds > most {
			most, name = other.seconds, other.name
		}
	}
	return most, name
}

// Epoch is one steady epoch of a policy. Bytes and seconds are per node.
type Epoch struct {
	Policy       Policy  `json:"policy"`
	Hit          float64 `json:"hit"`
	ReadBytes    float64 `json:"read_bytes"`       // from disk, including the gaps that random reads read
	WriteBytes   float64 `json:"write_bytes"`      // to disk
	SourceBytes  float64 `json:"source_bytes"`     // from the source
	NetworkBytes float64 `json:"network_bytes"`    // received from peers; as many are sent to them
	Copies       float64 `json:"copies,omitempty"` // T: how often each peer keeps its share of the dataset; 0: no peers
	Seconds      Seconds `json:"seconds"`
	EpochS       float64 `json:"epoch_s"`
	RestedS      float64 `json:"rested_s,omitempty"` // an epoch that begins on a rested disk, like a single one; 0: no Burst is known
	StallS       float64 `json:"stall_s"`            // how long the training loop waits
	BoundBy      string  `json:"bound_by"`
	Sizes
	SlackBytes float64 `json:"slack_bytes"`
	Fits       bool    `json:"fits"`  // in memory; if false, MemoryBytes is the required memory
	Admit      float64 `json:"admit"` // the share that is admitted
}

// WritesPerDay returns the write volume per day, if epochs follow each other without a pause.
func (e Epoch) WritesPerDay() float64 { return per(e.WriteBytes*86400, e.EpochS) }

// Epoch returns a steady epoch of a policy that holds all samples that fit, at most Facts.Admit.
func (m *Model) Epoch(p Policy) Epoch {
	return m.epochAt(p, m.f.Admit)
}

func (m *Model) epochAt(p Policy, admit float64) Epoch {
	hit, z, sp, fits := m.top(p)
	hit = min(hit, admit)
	z, fits = m.need(p, hit, z, sp, fits)
	e := Epoch{Policy: p, Hit: hit, Copies: m.copies(p, hit, sp), Sizes: z, SlackBytes: sp.SlackBytes, Fits: fits, Admit: hit}
	read, write, disk := m.traffic(p, hit, z.BlockBytes, true)
	e.ReadBytes, e.WriteBytes = read.Bytes, write.Bytes
	e.SourceBytes, e.NetworkBytes = (1-hit)*m.node, m.fromPeers(hit, e.Copies)
	e.Seconds = m.others(hit, e.NetworkBytes)
	e.Seconds.Disk = disk.Seconds(read, write)
	e.EpochS, e.BoundBy = e.Seconds.slowest()
	e.StallS = e.EpochS - e.Seconds.Consumer
	if disk.Burst > 0 {
		e.RestedS = max(e.Seconds.others(), e.Seconds.Disk-disk.Burst)
	}
	return e
}

// traffic returns the bytes that a policy reads and writes in an epoch, and the disk as the policy uses it. The last epoch writes nothing.
func (m *Model) traffic(p Policy, hit, block float64, writes bool) (read, write Transfer, disk DiskLine) {
	disk = m.f.Device
	bytes := hit * m.node * m.f.StoredRatio
	switch {
	case p == MinIO:
		disk.QueueDepth, disk.Latency = m.f.Workers, m.f.FileOpen
		read = Transfer{bytes * (1 + pageBytes/m.stored), m.stored + pageBytes}
	case p == TwoLogfile:
		read, write = Transfer{bytes, m.f.Batch * m.stored}, Transfer{bytes, m.stored}
	case p.inPlace():
		read = Transfer{bytes * (1 + pageBytes/m.stored), (m.stored + pageBytes) / (1 + m.borders(p, block))}
	case p.reorders():
		if p == Log { // the whole log is scanned, even if this node delivers a part of it
			bytes *= m.f.Nodes
		}
		read, write = Transfer{bytes, block}, Transfer{bytes, block}
	}
	if !writes {
		write = Transfer{}
	}
	return read, write, disk
}

// borders returns x, the number of additional reads per sample, because some samples cross a border of blocks that are not adjacent. They are adjacent
// after an ingest to one device. A machine of a cluster fills several blocks at a time, with samples as they come.
func (m *Model) borders(p Policy, block float64) float64 {
	if (m.f.FromLog || m.f.Devices > 1 || p == PeerStatic) && block > 0 {
		return m.stored / block
	}
	return 0
}

// fromPeers returns the bytes that a node gets from peers, if each keeps its share so often. The node has that part of its samples itself.
func (m *Model) fromPeers(hit, copies float64) float64 {
	if copies == 0 {
		return 0
	}
	return max(0, hit-copies/m.f.Nodes) * m.node
}

// others returns the times of all resources except the disk, with bytes from peers.
func (m *Model) others(hit, fromPeers float64) Seconds {
	miss := 1 - hit
	return Seconds{
		Source: max(per(miss*m.f.DatasetBytes, m.f.Source.BPS), per(miss*m.node, m.f.Source.NodeBPS),
			per(miss*m.f.Samples, m.f.Source.Ops)),
		Network:  per(fromPeers+miss*m.node, m.f.NetworkBPS),
		Decode:   per(m.node, m.f.DecodeBPS),
		Consumer: per(m.node, m.f.ConsumerBPS),
	}
}
