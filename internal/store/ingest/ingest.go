// Package ingest makes a cache of a source, or adapts an existing cache to a changed source or job, while no server uses it.
//
// [Run] lists the source, fixes the geometry (block, budget, admission), opens or makes the cache, and decides what to do with an existing log:
// keep it, finish an interrupted sort, sort it into another order, adapt it to a changed source, or make it again. Then it reads the missing
// samples from the source. It never reads a stored sample again. If a run is killed at any point, the next run completes the cache.
package ingest

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lcache/chunker"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/usage"
	"lcache/logfile"
	"lcache/sample"
	"lcache/source"
)

// Options of Run.
type Options struct {
	Source         string
	Exts           []string
	Flat           bool
	AllowEmpty     bool               // accept class folders without files
	Group          string             // source.GroupStem, or "": each file is a sample
	Records        source.RecordFlags // of a source of records
	Part           string             // of shards: the extension of the part that comes first; "": chosen by a rule
	Labels         string             // a CSV file of name,label; "": the folders' labels
	Stream         bool               // read compressed shards, which have no random access, sequentially
	Remote         source.Remote      // settings of a source that is not a directory
	Complete       bool               // do not list a remote source again if the cache has all of it
	DryRun         bool               // list the source, and report the cost of reading it; no cache is made
	FollowLinks    *bool              // follow links out of the source; nil: yes, but not for other users
	Dirs           []string
	Filtered       *Options // the cache to use if Exts remove a file; Dirs are then the cache without a filter. nil: Dirs are the cache in any case
	Job            schedule.Job
	Budget, Memory int64 // bytes; 0: the default
	NoPrefill      bool
	Compress       string // "auto", "lz4" or "none"; "": as in the existing cache, and none in a new one
	Layout         string // "" or "auto", "log", "static": the layout in which it will be served
	Jobs           int    // reads at once; 0: 16
	Share, Shares  int    // the Share-th of Shares parts of the source, from 0; 0, 0: all of it
	Relist         bool   // list every folder, not only changed ones
	Lister         Lister // other machines that list the same source; nil: none
	Dataset        string // name of the dataset among the machines of Lister, in place of Source; "": it has none
	Disk           Disk   // nil: no facts about the devices are known
	IO             cache.IO
	Block          int // bytes; 0: chosen (tests)
	Logger         *slog.Logger
	Progress       func(cache.Progress)
	Cost           func(Cost)    // receives the cost before a remote source is read; may be nil
	Hint           func(*Report) // receives a report with TarPattern or Records before any file is read, if one of them is set; may be nil

	Statfs func(dir string, fs *unix.Statfs_t) error // for tests; nil: the system's
}

// A Disk returns the facts about the devices under a cache's directories. For a new cache it may measure them, which takes up to 3 s. When ctx
// ends it returns without a measurement.
type Disk func(ctx context.Context, isNew bool, dirs []string) cache.Disk

// A Report describes an ingest, and the cache after it.
type Report struct {
	Source         string           `json:"source"`
	Dirs           []string         `json:"dirs"`
	Samples        int              `json:"samples"`
	Classes        int              `json:"classes"`
	Bytes          int64            `json:"bytes"`
	Fingerprint    string           `json:"fingerprint"`
	Changed        bool             `json:"changed"` // the source has changed since the last ingest; if the cache was adapted, the numbers of samples follow
	AddedSamples   int              `json:"added_samples"`
	RemovedSamples int              `json:"removed_samples"`
	ChangedSamples int              `json:"changed_samples"`
	Anew           bool             `json:"anew"` // the cache could not be adapted, and was made again
	ReadBytes      int64            `json:"read_bytes"`
	ReadSamples    int64            `json:"read_samples"`
	Replaced       int              `json:"replaced_samples"` // their files were replaced by others of the same size and time
	ReadSeconds    float64          `json:"read_seconds"`
	Already        int64            `json:"already"` // samples that were in the log before
	Resorted       bool             `json:"resorted"`
	StoredSamples  int              `json:"stored_samples"`
	StoredBytes    int64            `json:"stored_bytes"` // that the samples take in the log
	Compress       string           `json:"compress"`     // "lz4" or "none"
	Saves          *float64         `json:"saves"`        // the share of the bytes that lz4 saves, or would save; null: not measured
	BudgetBytes    int64            `json:"budget_bytes"`
	ArenaBytes     int64            `json:"arena_bytes"`
	SlackBytes     int64            `json:"slack_bytes"`
	MetadataBytes  int64            `json:"metadata_bytes"`
	FreeAfter      int64            `json:"free_after"`
	MemoryBytes    int64            `json:"memory_bytes"`
	Segments       int              `json:"segments"`
	SegmentBytes   int64            `json:"segment_bytes"`
	BlockBytes     int64            `json:"block_bytes"`
	Layout         string           `json:"layout"`
	LayoutReason   string           `json:"layout_reason"`
	HitRatio       float64          `json:"hit_ratio"`
	Defaults       []cache.Default  `json:"defaults"`
	Cost           *Cost            `json:"cost,omitempty"`         // of a remote source, before it was read
	FirstEpoch     *FirstEpoch      `json:"first_epoch,omitempty"`  // requests of the first epoch to remote shards that were not read; only if they are far more than an ingest's
	Remote         *source.Requests `json:"remote,omitempty"`       // all requests to a remote source, with the listing
	SourceWait     float64          `json:"source_wait_seconds"`    // part of ReadSeconds: how long each reader waited for the source, on average
	ListedBefore   time.Time        `json:"listed_before,omitzero"` // when the source was listed, if its cache has all of it and it was not listed again
	TarPattern     string           `json:"tar_pattern,omitempty"`  // the source to give instead, if each file of a directory is a tar shard
	Records        string           `json:"records,omitempty"`      // why each file probably contains many samples, which lcache does not read one by one
	Others         []Other          `json:"other_caches,omitempty"` // other caches of the source, if this one is new
	LeftOut        int              `json:"left_out,omitempty"`     // files that belong to no sample: outside the class folders, or in shards without an extension
}

// A Cost is the number of requests to a remote source.
type Cost struct {
	Listed  int64 `json:"listing_requests"` // requests made so far
	Gets    int64 `json:"get_requests"`
	Samples int64 `json:"samples"` // 0 if reported before a listing of shards
	Bytes   int64 `json:"bytes"`
	// If the headers of shards must be read first, once:
	Shards int   `json:"shards,omitempty"`
	Index  int64 `json:"index_get_requests,omitempty"` // about; Gets, too
}

// Run makes a cache of a source, or completes or adapts an existing one. Samples that are stored already are not read again.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Filtered != nil && isMade(o.Filtered.Dirs[0]) {
		o = *o.Filtered
	}
	report, err := one(ctx, o, nil)
	moved := new(elsewhere)
	if !errors.As(err, &moved) {
		return report, err
	}
	moved.dir = o.Dirs[0]
	report, err = one(ctx, *o.Filtered, moved)
	leave(o.Dirs)
	return report, err
}

// one is Run for the cache in o.Dirs. moved is not nil if another cache of the source turned out to be the wrong one.
func one(ctx context.Context, o Options, moved *elsewhere) (report *Report, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(cache.Progress) {}
	}
	freeJobs := o.Jobs <= 0
	if freeJobs {
		o.Jobs = 16
	}
	if o.Shares == 0 {
		o.Shares = 1
	}
	if o.Share < 0 || o.Share >= o.Shares {
		return nil, usage.Errorf("--share %d/%d: give i/N with 0 ≤ i < N", o.Share, o.Shares)
	}
	if err := checkCompress(o.Compress); err != nil {
		return nil, err
	}
	if err := cache.CheckLayout(o.Layout); err != nil {
		return nil, err
	}
	if err := o.Job.Check(); err != nil {
		return nil, err
	}
	o.Stream = o.Stream || keptStream(o)
	if o.Remote, err = keptRemote(o).Completed(o.Source); err != nil {
		return nil, err
	}
	if o.DryRun {
		return dryRun(ctx, o)
	}
	in := &run{o: o, moved: moved, freeJobs: freeJobs, cache: &cache.Cache{Logger: o.Logger, Elsewhere: o.IO.Elsewhere, Shared: o.Lister != nil}, report: &Report{}}
	defer func() {
		in.freeLine()
		if err != nil {
			in.undo()
		}
		err = errors.Join(err, in.cache.Close())
	}()
	if err := in.prepare(ctx); err != nil {
		return nil, err
	}
	if err := in.prefill(ctx); err != nil {
		return nil, err
	}
	if in.o.NoPrefill {
		in.report.FirstEpoch = in.firstEpoch()
	}
	if err := in.finish(); err != nil {
		return nil, err
	}
	if err := in.cache.NoteComplete(); err != nil {
		return nil, err
	}
	if err := in.forgetOlder(); err != nil {
		return nil, err
	}
	return in.report, nil
}

// run is one ingest.
type run struct {
	sharing  string // properties of the listing that other machines wait for; "": none do
	o        Options
	moved    *elsewhere // nil: no other cache was tried before
	freeJobs bool       // o.Jobs is the default
	was      dirsBefore
	locked   bool // this process has locked the directories
	cache    *cache.Cache
	report   *Report
	fresh    bool                 // the cache is made again
	old      *cache.Record        // the record before this ingest; nil: there was none
	full     atomic.Int64         // samples without room in their segment
	folders  []source.Folder      // of a new listing
	inodes   []uint64             // of the listing, by index, if there was a cache before; nil: unknown
	partly   bool                 // the listing read only folders that had changed
	outside  int                  // samples that are reached through links that leave the source
	leftOut  int                  // files that belong to no sample
	listedAt time.Time            // of a remote source
	layout   *chunker.EpochLayout // the layout of target
	target   *logfile.Logfile     // the Logfile that samples are read into
}

// freeLine frees the layout of the target.
func (in *run) freeLine() {
	if in.layout != nil {
		in.layout.Free()
		in.layout = nil
	}
}

// finish completes the report.
func (in *run) finish() error {
	c, r := in.cache, in.report
	r.Source, r.Dirs = c.Source.String(), c.Dirs
	r.Samples, r.Classes, r.Bytes = c.Manifest.Len(), len(c.Manifest.Classes()), int64(c.Manifest.Bytes())
	r.Fingerprint, r.LeftOut = c.Manifest.Fingerprint().String(), in.leftOut
	for i := range c.Manifest.Len() {
		if c.Locations.Get(sample.Index(i)) != 0 {
			r.StoredSamples++
			r.StoredBytes += int64(c.StoredSize(sample.Index(i)))
		}
	}
	in.reportPacking()
	if in.old == nil {
		r.Others = in.others()
	}
	z := c.Sizing
	r.BudgetBytes, r.ArenaBytes, r.SlackBytes = int64(z.Budget), int64(z.Arena), int64(z.Slack)
	r.MetadataBytes = int64(c.Facts().Metadata)
	r.MemoryBytes, r.SegmentBytes, r.BlockBytes = int64(z.Memory), int64(z.Segment), int64(z.Block)
	if in.target != nil {
		r.Segments = int(in.target.Header().Segments)
	}
	if r.Bytes > 0 {
		r.HitRatio = float64(c.Record.KeptBytes) / float64(r.Bytes)
	}
	if n, ok := source.RequestsOf(c.Lister); ok {
		r.Remote = &n
	}
	if free, err := freeSpace(c.Dirs[0]); err == nil {
		r.FreeAfter = int64(free)
	}
	return nil
}
