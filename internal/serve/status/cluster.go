package status

// Cluster is the part about the other machines that serve the same dataset.
type Cluster struct {
	State          string         `json:"state"`            // off, forming, alone, ok, degraded or refused
	Label          string         `json:"label,omitempty"`  // of its key, the same on all machines; "": it has no key
	Listen         string         `json:"listen,omitempty"` // the address by which others find this server
	Expected       int            `json:"expected"`         // machines that the first roster waits for; 0: not known
	Members        int            `json:"members"`          // lcache processes that this one knows, itself included
	Rosters        int64          `json:"roster_changes"`
	Roster         string         `json:"roster,omitempty"`         // its hash, which is equal on all machines; "": none yet
	Refused        int64          `json:"refused"`                  // messages of machines with another key or version
	Reason         string         `json:"refused_reason,omitempty"` // of the last one
	ReasonSeconds  float64        `json:"refused_seconds_ago"`      // when the last one came; 0: none
	CorruptSamples int64          `json:"corrupt_samples"`          // that arrived with wrong bytes, and were read again
	SkippedSamples int64          `json:"skipped_samples"`          // that arrived and were not stored, because the disk was busy
	Unassigned     int64          `json:"unassigned_bytes"`         // on disk, of samples that the roster gives to other machines
	IsCrowded      bool           `json:"crowded"`                  // those take a notable part of the cache's room
	SourceBytes    int64          `json:"source_bytes"`             // read from the source for other machines
	SourceReads    int64          `json:"source_reads"`             // samples of those
	Dataset        string         `json:"dataset,omitempty"`        // the name that --dataset gave
	Fingerprint    string         `json:"fingerprint,omitempty"`    // of the dataset: the part that others see with its name
	Others         []ClusterOther `json:"others,omitempty"`         // machines that have another dataset with that name
	Peers          []ClusterPeer  `json:"peers,omitempty"`          // this machine first
}

// ClusterOff is the State of a server that is in no cluster.
const ClusterOff = "off"

// ClusterOther is a machine that has another dataset with the same name.
type ClusterOther struct {
	ID      string `json:"fingerprint"` // of its dataset, the part that others see
	Host    string `json:"host"`
	Address string `json:"addr"`
}

// ClusterPeer is one machine that serves the dataset.
type ClusterPeer struct {
	ID            string  `json:"id"`     // of its cache
	Member        string  `json:"member"` // of its process, a new one with each start
	Host          string  `json:"host"`
	Address       string  `json:"addr"`
	Version       string  `json:"version"`
	State         string  `json:"state"`         // ok, slow, late, lost or refused
	StateSeconds  float64 `json:"state_seconds"` // how long it has been so
	Layout        string  `json:"layout"`
	InRoster      bool    `json:"in_roster"`
	RoomShare     float64 `json:"room_share"`     // part of the dataset for which its cache has room
	Copies        float64 `json:"copies"`         // how many of each sample's copies it keeps: 1 for all samples whose home it is, below that a part of them
	KeepBytes     int64   `json:"keep_bytes"`     // bytes on disk of the samples that it keeps; of other machines about that
	InBytes       int64   `json:"in_bytes"`       // of samples, from it to this machine
	OutBytes      int64   `json:"out_bytes"`      // of samples, from this machine to it
	OutParcels    int64   `json:"out_parcels"`    // messages with those
	LateSamples   int64   `json:"late_samples"`   // requested from it, and read from elsewhere because it did not answer in time
	SlowSamples   int64   `json:"slow_samples"`   // due of it, and read from the source because it is slow
	AbsentSamples int64   `json:"absent_samples"` // requested from it, and it did not have them
}
