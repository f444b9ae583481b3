package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"lcache/schedule"
	"lcache/source"
)

// Record is job.json: what a cache was made for. It is written last in ingest's preparation, atomically.
type Record struct {
	Schema int      `json:"schema"`
	Source string   `json:"source"`
	Exts   []string `json:"exts,omitempty"`
	Flat   bool     `json:"flat,omitempty"`
	Group  string   `json:"group,omitempty"`
	Labels string   `json:"labels,omitempty"`
	LinkFacts
	Job       schedule.Job `json:"job"`
	Budget    int64        `json:"budget"` // as given; 0: what the dataset needs
	Memory    int64        `json:"memory"`
	Threshold uint64       `json:"threshold"` // of admission by name hash
	Kept      int          `json:"kept_samples"`
	KeptBytes uint64       `json:"kept_bytes"`
	Chunk     uint64       `json:"largest_chunk"`    // bytes, of the first epoch: what a client must be allowed to hold at least
	Layout    string       `json:"layout,omitempty"` // as given; "": auto
	Share     int          `json:"share,omitempty"`
	Shares    int          `json:"shares,omitempty"`
	Counted   *Counted     `json:"extensions,omitempty"`
	Packing
}

// Counted says how many files of a manifest have each extension, so that a client's filter which removes nothing can be told from one that does.
type Counted struct {
	Fingerprint string        `json:"fingerprint"` // of the manifest
	Files       source.Counts `json:"files"`       // nil: too many extensions
}

const RecordName = "job.json"

// ErrDamaged is the class of errors about a job.json that is not as it was written. Ingest makes the cache anew then.
var ErrDamaged = errors.New("it is damaged: run lcache ingest again")

// jobChecksum is the last field of job.json: xxh3-64 of the bytes before it. A flipped digit of a seed or a budget would be believed
// otherwise, and the job would run in another order.
const jobChecksum = ",\n  \"checksum\": \""

func sealJob(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n}"))
	return fmt.Appendf(b, "%s%016x\"\n}\n", jobChecksum, xxh3.Hash(b))
}

// checkJob accepts a file without a checksum too: the first versions wrote none.
func checkJob(b []byte) error {
	body, sum, found := bytes.Cut(b, []byte(jobChecksum))
	if found && string(sum) != fmt.Sprintf("%016x\"\n}\n", xxh3.Hash(body)) {
		return fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	return nil
}

func ReadRecord(dir string) (j Record, err error) {
	b, err := readFile(filepath.Join(dir, RecordName))
	if err != nil {
		return j, err
	}
	if err := checkJob(b); err != nil {
		return j, fmt.Errorf("%s: %w", filepath.Join(dir, RecordName), err)
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return j, fmt.Errorf("%s: %w: %w", filepath.Join(dir, RecordName), ErrDamaged, err)
	}
	if j.Schema != 1 {
		return j, fmt.Errorf("%s has schema %d, this lcache knows 1: use the lcache that made the cache, or ingest again", filepath.Join(dir, RecordName), j.Schema)
	}
	return j, nil
}

// readFile reads a small file of the cache, never through a symbolic link.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > 16<<20 {
		return nil, fmt.Errorf("%s is %d bytes: not a file of lcache", path, st.Size())
	}
	b := make([]byte, st.Size())
	_, err = f.ReadAt(b, 0)
	return b, err
}

func WriteRecord(dir string, j Record) error {
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	return ReplaceFile(filepath.Join(dir, RecordName), sealJob(b))
}

// ReplaceFile writes a small file of the cache as a whole or not at all.
func ReplaceFile(path string, b []byte) error {
	tmp := path + ".new"
	os.Remove(tmp)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return SyncDir(filepath.Dir(path))
}

func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Name is the job's, for people: the last Name of the source.
func (c *Cache) Name() string {
	name := filepath.Base(strings.TrimRight(c.Record.Source, "/"))
	if name == "." || name == "/" {
		return c.Record.Source
	}
	return name
}
