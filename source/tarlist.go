package source

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"lcache/internal/errcode"
	"lcache/sample"
	"lcache/source/internal/tarshard"
)

// List lists all shards of the pattern, in order, and the samples of each in the order of their first members. A
// sample's label is its part cls, or the position of its folder among all folders, or 0. A file of labels replaces
// all of these. The first part is the first one in the shard that is not a label, json or txt.
func (s *shards) List(ctx context.Context, progress func(samples int)) ([]string, []sample.Entry, error) {
	l, err := s.list(ctx, progress)
	if err != nil {
		return nil, nil, err
	}
	return l.Classes, entriesOf(l.Samples()), nil
}

func (s *shards) list(ctx context.Context, progress func(int)) (l *Listing, err error) {
	names, err := s.names(ctx)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(s.src), err)
	}
	err = s.store.survey(ctx, names)
	var all []*members
	if err == nil {
		all, err = s.indexAll(ctx, names, progress)
	}
	if err == nil {
		l, err = s.join(names, all)
	}
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(s.src), err)
	}
	return l, nil
}

// SameShards reports whether a source consists of exactly these listed shards. Then its samples need not be listed
// again. outside says which shards are reached through a link that leaves the source.
func SameShards(ctx context.Context, src Source, before []sample.Shard) (outside []bool, same bool, err error) {
	s := shardsOf(src)
	if s == nil || s.kind.Described || len(before) == 0 {
		return nil, false, nil
	}
	names, err := s.names(ctx)
	if err != nil || len(names) != len(before) {
		return nil, false, nil // the listing reports the error
	}
	if err := s.store.survey(ctx, names); err != nil {
		return nil, false, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(s.src), err)
	}
	for i, name := range names {
		if name != before[i].Name {
			return nil, false, nil
		}
		same, out := s.store.is(ctx, before[i])
		if !same {
			return nil, false, nil
		}
		outside = append(outside, out)
	}
	return outside, true, nil
}

// join concatenates the samples of the shards, and labels them.
func (s *shards) join(names []string, all []*members) (l *Listing, err error) {
	rows := newShardRows(all)
	l = &Listing{listed: rows}
	for _, m := range all {
		l.LeftOut, l.Removed = l.LeftOut+m.leftOut, l.Removed+m.removed
		if m.outside {
			l.Outside += m.len()
		}
	}
	if rows.Len() == 0 {
		return nil, fmt.Errorf("%w: its %d shards hold no file%s", ErrEmpty, len(names), ofExts(s.opts.Exts))
	}
	switch {
	case s.opts.Labels != "":
		l.Entries, l.listed = entriesOf(rows), nil
		l.Classes, err = applyLabels(s.opts.Labels, l.Entries)
	case s.opts.Flat:
		rows.unlabel()
	default:
		l.Classes, err = rows.label()
	}
	return l, err
}

// indexAll lists shards in parallel. The error is that of the first shard with one.
func (s *shards) indexAll(ctx context.Context, names []string, progress func(int)) (all []*members, err error) {
	var kept *tarshard.Kept
	if s.opts.Kept != "" {
		if kept, err = tarshard.OpenKept(s.opts.Kept); err != nil {
			return nil, err
		}
		defer kept.Close()
	}
	all = make([]*members, len(names))
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	err = s.eachShard(ctx, names, progress, func(i int) (n int, err error) {
		all[i], err = s.index(ctx, names[i], kept, turns)
		return all[i].len(), err
	})
	if err == nil && kept != nil {
		err = kept.Forget()
	}
	return all, err
}

// mostMissing is the number of missing shards after which a listing gives up.
const mostMissing = 1000

// eachShard calls index for all shards, some at a time. index returns the number of samples. The error is that of the
// first shard with one. After a missing shard, the others are only opened, to count how many are missing.
func (s *shards) eachShard(ctx context.Context, names []string, progress func(int), index func(i int) (samples int, err error)) error {
	errs := make([]error, len(names))
	var mu sync.Mutex // guards next, found, missing and failed, and the calls of progress
	next, found, missing, failed := 0, 0, 0, false
	var wg sync.WaitGroup
	for range min(s.opts.Jobs, len(names)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i, counting := next, missing > 0
				stop := failed || missing >= mostMissing || i == len(names)
				if !stop {
					next++
				}
				mu.Unlock()
				if stop {
					return
				}
				var n int
				if counting {
					errs[i] = s.look(ctx, names[i])
				} else {
					n, errs[i] = index(i)
				}
				mu.Lock()
				found += n
				if errors.Is(errs[i], ErrGone) {
					missing++
				} else if errs[i] != nil {
					failed = true
				}
				if progress != nil {
					progress(found)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return firstOf(names, errs[:next])
}

// look returns an error if a shard can't be opened.
func (s *shards) look(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o, err := s.store.open(ctx, name)
	if err == nil {
		o.close()
	}
	return err
}

// firstOf returns the error of a listing, given the errors of its first shards.
func firstOf(names []string, errs []error) error {
	missing := 0
	for _, err := range errs {
		if errors.Is(err, ErrGone) {
			missing++
		}
	}
	for i, err := range errs {
		if errors.Is(err, ErrGone) {
			more := andMore(missing - 1)
			if more != "" && len(errs) < len(names) {
				more += fmt.Sprintf(" of the first %d of %d", len(errs), len(names))
			}
			return fmt.Errorf("shard %s is missing%s: put it there, or correct the pattern", clip(names[i]), more)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// index lists one shard, or uses its stored index if the shard has not changed. Reading a shard is mostly waiting.
// Making samples from its members takes a CPU and several times the members' memory, so it needs a turn.
func (s *shards) index(ctx context.Context, name string, kept *tarshard.Kept, turns chan struct{}) (*members, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, err := s.store.open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", clip(name), err)
	}
	defer o.close()
	var found []tarshard.Member
	known := false
	if kept != nil {
		found, known = kept.Get(name, o.Size(), o.Version())
	}
	if !known {
		if found, err = s.membersOf(ctx, name, o); err != nil {
			return nil, err
		}
		if kept != nil {
			if err := kept.Add(name, o.Size(), o.Version(), found); err != nil {
				return nil, err
			}
		}
	}
	turns <- struct{}{}
	defer func() { <-turns }()
	keep := func(member string) bool { return hasExt(member, s.opts.Exts) }
	samples, again, err := tarshard.Group(name, found, keep)
	if err != nil {
		return nil, err
	}
	if len(again) > 0 {
		s.opts.Logger.Warn("members of a shard have the same name: the last of each counts, as when it is extracted", "shard", name, "first", again[0], "members", len(again))
	}
	shard := &sample.Shard{Name: name, Size: uint64(o.Size()), Version: o.Version(), Records: s.kind.Members}
	if s.opts.isPacking(name) {
		shard.Size = tarshard.End(found)
	}
	m := &members{shard: shard, outside: o.outside()}
	for _, f := range found {
		switch _, _, ok := tarshard.Split(f.Name); {
		case ok && !keep(f.Name):
			m.removed++
		case !ok && keep(f.Name):
			m.leftOut++
		}
	}
	return m, m.take(samples, s.opts.Part)
}

// membersOf lists the members of a shard.
func (s *shards) membersOf(ctx context.Context, name string, o openShard) ([]tarshard.Member, error) {
	if s.kind.Members {
		if far, ok := s.store.(*shardObjects); ok && far.noRanges.Load() {
			return nil, fmt.Errorf("shard %s: the directory of a zip file is at its end, which can't be reached %s: unpack it, or download it", clip(name), withoutRandom(name))
		}
		return tarshard.IndexZip(ctx, name, o, s.opts.decode)
	}
	if !o.streamed() {
		return tarshard.Index(ctx, name, o)
	}
	raw := o.stream(ctx)
	defer raw.Close()
	return tarshard.IndexStream(ctx, name, raw, o.Size())
}

// firstPart returns the main part of a sample: the first one that is not only a description.
func firstPart(parts []tarshard.Part) int {
	for _, lesser := range [][]string{{"cls", "json", "txt"}, {"cls"}} {
		if i := slices.IndexFunc(parts, func(p tarshard.Part) bool { return !slices.Contains(lesser, p.Ext) }); i >= 0 {
			return i
		}
	}
	return 0
}
