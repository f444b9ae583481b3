package cache

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/durable"
	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/schedule"
	"lcache/internal/trust"
	"lcache/source"
)

// A Record is the content of job.json: source and job of a cache, and the sizes that were fixed when it was made. Ingest writes it as the
// last step of its preparation, atomically.
type Record struct {
	Schema      int                `json:"schema"`
	Source      string             `json:"source"`
	Identity    string             `json:"identity,omitempty"` // of a source KIND:@FILE, by the content of the list
	Exts        []string           `json:"exts,omitempty"`
	Flat        bool               `json:"flat,omitempty"`
	AllowEmpty  bool               `json:"allow_empty,omitempty"` // class folders without files are classes
	Group       string             `json:"group,omitempty"`
	Labels      string             `json:"labels,omitempty"`
	FirstPart   string             `json:"first_part,omitempty"`   // the extension of the part that comes first, as given
	RecordFlags source.RecordFlags `json:"record_flags,omitempty"` // of a source of records, by the flags' names
	Stream      bool               `json:"stream,omitempty"`       // compressed shards are read sequentially
	NoRanges    bool               `json:"no_ranges,omitempty"`    // the server of its shards does not serve ranges
	LinkFacts
	Remote    source.Remote `json:"remote,omitzero"`    // of a source that is not a directory
	Listed    time.Time     `json:"listed,omitzero"`    // when such a source was last listed
	Complete  bool          `json:"complete,omitempty"` // all its admitted samples have been in the log since then
	Job       schedule.Job  `json:"job"`
	Budget    int64         `json:"budget"`           // as given, bytes; 0: as much as the dataset needs
	Memory    int64         `json:"memory"`           // as given, bytes; 0: the default
	Threshold uint64        `json:"threshold"`        // of admission by name hash
	Most      uint64        `json:"most,omitempty"`   // padded bytes of the largest admitted sample; 0: any
	Kept      int           `json:"kept_samples"`     // admitted samples
	KeptBytes uint64        `json:"kept_bytes"`       // of the admitted samples, unpadded
	Chunk     uint64        `json:"largest_chunk"`    // bytes, of the first epoch: the least that a client must be allowed to hold
	Layout    string        `json:"layout,omitempty"` // as given; "": auto
	Chosen    *Chosen       `json:"chosen,omitempty"` // by a server, from measurements; nil: it kept the first layout
	Share     int           `json:"share,omitempty"`
	Shares    int           `json:"shares,omitempty"`
	Counted   *Counted      `json:"extensions,omitempty"`
	LeftOut   int           `json:"left_out,omitempty"` // files of the source that belong to no sample
	Packing
	PackedManifest bool `json:"packed_manifest,omitempty"` // the manifest is written packed, if it is not too large for that
}

// Counted has the number of files for each extension in a manifest. It shows whether a client's filter of extensions removes any file.
type Counted struct {
	Fingerprint string        `json:"fingerprint"` // of the manifest
	Files       source.Counts `json:"files"`       // nil: too many extensions
}

// RecordName is the file name of a Record.
const RecordName = "job.json"

// mostRecord bounds the size of a Record's file, in bytes.
const mostRecord = 16 << 20

// ErrDamaged is the class of errors about a damaged job.json. Ingest then makes the cache again.
var ErrDamaged = errcode.New(errcode.CacheDamaged, "it is damaged: run lcache ingest again")

// jobChecksum begins the last field of job.json: xxh3-64 of the bytes before it. Without a checksum, a flipped digit of a seed would pass
// unnoticed, and the job would run in another order.
const jobChecksum = ",\n  \"checksum\": \""

// sealJob adds the checksum.
func sealJob(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n}"))
	return fmt.Appendf(b, "%s%016x\"\n}\n", jobChecksum, xxh3.Hash(b))
}

// checkJob compares the checksum. It accepts a file without one: the first versions wrote none.
func checkJob(b []byte) error {
	body, sum, found := bytes.Cut(b, []byte(jobChecksum))
	if found && string(sum) != fmt.Sprintf("%016x\"\n}\n", xxh3.Hash(body)) {
		return fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	return nil
}

// ReadRecord reads the Record of a cache from its first directory. The error wraps ErrDamaged or fs.ErrNotExist if that is the cause.
func ReadRecord(dir string) (j Record, err error) {
	b, err := trust.ReadFile(filepath.Join(dir, RecordName), mostRecord)
	if err != nil {
		return j, err
	}
	if err := checkJob(b); err != nil {
		return j, fmt.Errorf("%s: %w", filepath.Join(dir, RecordName), err)
	}
	if err := jsonbytes.Unmarshal(b, &j); err != nil {
		return j, fmt.Errorf("%s: %w: %w", filepath.Join(dir, RecordName), ErrDamaged, err)
	}
	if j.Schema != 1 {
		return j, errcode.Errorf(errcode.Version, "%s has schema %d, this lcache knows 1: use the lcache that made the cache, or ingest again", filepath.Join(dir, RecordName), j.Schema)
	}
	return j, nil
}

// WriteRecord replaces the Record of a cache in its first directory, atomically and durably.
func WriteRecord(dir string, j Record) error {
	b, err := jsonbytes.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	return durable.ReplaceFile(filepath.Join(dir, RecordName), sealJob(b))
}

// Name returns the dataset's name, for people: the last element of the source's path. For a pattern it is the text before the first wildcard,
// as in train-{000..146}.tar, or the folder if that text is empty.
func (c *Cache) Name() string {
	path := strings.TrimRight(c.Record.Source, "/")
	name := filepath.Base(path)
	if k := strings.IndexAny(name, "*?[{"); k >= 0 {
		if name = strings.TrimRight(name[:k], "-_."); name == "" {
			_, folder, _ := strings.Cut(filepath.Dir(path), ":") // of tar:PATTERN, and of s3://BUCKET/PATTERN
			name = filepath.Base(cmp.Or(folder, filepath.Dir(path)))
		}
	}
	if name == "." || name == "/" {
		return c.Record.Source
	}
	return name
}
