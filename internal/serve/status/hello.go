package status

// Hello is the server's answer to a client that attaches.
type Hello struct {
	Protocol    int      `json:"protocol"`
	Pid         int      `json:"pid"`
	Version     string   `json:"version"`
	Server      string   `json:"server"`
	Token       string   `json:"token"`
	Name        string   `json:"name"`
	Source      string   `json:"source"`
	Fingerprint string   `json:"fingerprint"`
	Samples     int      `json:"samples"`
	Epochs      int      `json:"epochs"`
	BatchSize   int      `json:"batch_size"`
	World       int      `json:"world"`
	Ranks       []int    `json:"ranks"`
	DropLast    bool     `json:"drop_last"`
	Recipe      string   `json:"recipe"`
	Seed        string   `json:"seed"`
	Classes     []string `json:"classes"`
	Parts       bool     `json:"parts"` // samples have parts, which the PARTS request lists
	MemoryBytes int64    `json:"memory_bytes"`
	CreditBytes int64    `json:"credit_bytes"`
	OnError     string   `json:"on_error"`
	Features    []string `json:"features"`           // features of this server in addition to the first version of the protocol
	Embedded    bool     `json:"embedded,omitempty"` // a training process started the server for itself, and restarts it

	Params  map[string]string `json:"params"`
	Listing Listing           `json:"listing"`
}

// Listing describes how the server's manifest was listed. A client compares it with its own settings.
type Listing struct {
	Identity    string            `json:"identity"` // of the source: source.Identity
	Exts        []string          `json:"ext"`      // as --ext; empty: all files
	Flat        bool              `json:"flat"`
	Group       string            `json:"group"`                  // "none" or "stem"
	Labels      string            `json:"labels"`                 // a file; "": the folders' labels
	FirstPart   string            `json:"first_part,omitempty"`   // as --part
	RecordFlags map[string]string `json:"record_flags,omitempty"` // of a source of records, by the flags' names
	RecordFiles string            `json:"record_files,omitempty"` // of a source of records: a digest of its files' sizes and versions
	Extensions  map[string]int64  `json:"extensions"`             // files listed, by extension; null: not counted

	S3Endpoint string `json:"s3_endpoint"` // of a bucket outside AWS; "": AWS, or no bucket

	FollowLinks  bool `json:"follow_links"`
	OutsideLinks int  `json:"outside_links"` // samples reached through links that leave the source
}
