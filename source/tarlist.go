package source

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"lcache/sample"
	"lcache/tarshard"
)

// List lists all shards of the pattern, in order, and the samples of each in the order of their first members. The label of a sample is its part cls, or its folder's place
// among all folders, or 0; a file of labels takes the place of all that. The first part is the first in the shard that is no label, json or txt.
func (s *shards) List(ctx context.Context, progress func(samples int)) ([]string, []sample.Entry, error) {
	l, err := s.list(ctx, progress)
	if err != nil {
		return nil, nil, err
	}
	return l.Classes, l.Entries, nil
}

func (s *shards) list(ctx context.Context, progress func(int)) (l *Listing, err error) {
	names, err := s.store.names(s.pattern)
	if err != nil {
		return nil, fmt.Errorf("list source %s: %w", clip(s.src), err)
	}
	err = s.store.survey(ctx, names)
	var all []indexed
	if err == nil {
		all, err = s.indexAll(ctx, names, progress)
	}
	if err == nil {
		l, err = s.join(names, all)
	}
	if err != nil {
		return nil, fmt.Errorf("list source %s: %w", clip(s.src), err)
	}
	return l, nil
}

// SameShards reports whether a source is exactly these shards, which were listed before: then its samples need not be listed again. outside says which of them are reached through a link that
// leaves the source.
func SameShards(ctx context.Context, src Source, before []sample.Shard) (outside []bool, same bool, err error) {
	s, ok := src.(*shards)
	if !ok || len(before) == 0 {
		return nil, false, nil
	}
	names, err := s.store.names(s.pattern)
	if err != nil || len(names) != len(before) {
		return nil, false, nil // the listing says what is wrong
	}
	if err := s.store.survey(ctx, names); err != nil {
		return nil, false, fmt.Errorf("list source %s: %w", clip(s.src), err)
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

// join makes one list of the shards' samples, and labels them.
func (s *shards) join(names []string, all []indexed) (l *Listing, err error) {
	total := 0
	for _, listed := range all {
		total += len(listed.samples)
	}
	texts, exts := make([]labelled, 0, total), map[string]string{}
	l = &Listing{Entries: make([]sample.Entry, 0, total)}
	for i, listed := range all {
		for k := range listed.samples {
			e, err := entryOf(names[i], listed.shard, &listed.samples[k], s.opts.Part, exts)
			if err != nil {
				return nil, err
			}
			l.Entries, texts = append(l.Entries, e), append(texts, labelOf(&listed.samples[k]))
		}
		if listed.outside {
			l.Outside += len(listed.samples)
		}
		all[i].samples = nil // a listing of many millions should not be held twice
	}
	if len(l.Entries) == 0 {
		return nil, fmt.Errorf("%w: its %d shards hold no file%s", ErrEmpty, len(names), ofExts(s.opts.Exts))
	}
	switch {
	case s.opts.Labels != "":
		l.Classes, err = applyLabels(s.opts.Labels, l.Entries)
	case !s.opts.Flat:
		l.Classes, err = label(l.Entries, texts)
	}
	return l, err
}

// indexed is one shard and its samples.
type indexed struct {
	shard   *sample.Shard
	samples []tarshard.Sample
	outside bool
}

// indexAll lists shards side by side. The error is that of the first shard that has one.
func (s *shards) indexAll(ctx context.Context, names []string, progress func(int)) (all []indexed, err error) {
	var kept *tarshard.Kept
	if s.opts.Kept != "" {
		if kept, err = tarshard.OpenKept(s.opts.Kept); err != nil {
			return nil, err
		}
		defer kept.Close()
	}
	all = make([]indexed, len(names))
	errs := make([]error, len(names))
	var mu sync.Mutex // guards next, found and failed, and the calls of progress
	next, found, failed := 0, 0, false
	var wg sync.WaitGroup
	for range min(s.opts.Jobs, len(names)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := failed || i >= len(names)
				mu.Unlock()
				if stop {
					return
				}
				all[i], errs[i] = s.index(ctx, names[i], kept)
				mu.Lock()
				found += len(all[i].samples)
				failed = failed || errs[i] != nil && !errors.Is(errs[i], ErrGone) // missing ones are counted
				if progress != nil {
					progress(found)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := firstOf(names, errs); err != nil {
		return nil, err
	}
	if kept != nil {
		return all, kept.Forget()
	}
	return all, nil
}

// firstOf is the error of a listing with these errors of shards.
func firstOf(names []string, errs []error) error {
	missing := 0
	for _, err := range errs {
		if errors.Is(err, ErrGone) {
			missing++
		}
	}
	for i, err := range errs {
		if errors.Is(err, ErrGone) {
			return fmt.Errorf("shard %s is missing%s: put it there, or correct the pattern", clip(names[i]), andMore(missing-1))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// index lists one shard, from what is kept of it if it is still the same.
func (s *shards) index(ctx context.Context, name string, kept *tarshard.Kept) (indexed, error) {
	if err := ctx.Err(); err != nil {
		return indexed{}, err
	}
	o, err := s.store.open(ctx, name)
	if err != nil {
		return indexed{}, fmt.Errorf("shard %s: %w", clip(name), err)
	}
	defer o.close()
	var members []tarshard.Member
	known := false
	if kept != nil {
		members, known = kept.Get(name, o.Size(), o.Version())
	}
	if !known {
		if members, err = indexOf(ctx, name, o); err != nil {
			return indexed{}, err
		}
		if kept != nil {
			if err := kept.Add(name, o.Size(), o.Version(), members); err != nil {
				return indexed{}, err
			}
		}
	}
	samples, again, err := tarshard.Group(name, members, func(member string) bool { return hasExt(member, s.opts.Exts) })
	if err != nil {
		return indexed{}, err
	}
	if len(again) > 0 {
		s.opts.Logger.Warn("members of a shard have the same name: the last of each counts, as when it is extracted", "shard", name, "first", again[0], "members", len(again))
	}
	shard := &sample.Shard{Name: name, Size: uint64(o.Size()), Version: o.Version()}
	if tarshard.Packing(name) != "" {
		shard.Size = tarshard.End(members)
	}
	return indexed{shard, samples, o.outside()}, nil
}

// indexOf reads what is in a shard.
func indexOf(ctx context.Context, name string, o openShard) ([]tarshard.Member, error) {
	if !o.streamed() {
		return tarshard.Index(ctx, name, o)
	}
	raw := o.stream(ctx)
	defer raw.Close()
	return tarshard.IndexStream(ctx, name, raw, o.Size())
}

// entryOf makes an entry of a sample, its first part first: the chosen one, if one is. exts has each extension once: their texts are shared.
func entryOf(name string, shard *sample.Shard, s *tarshard.Sample, chosen string, exts map[string]string) (sample.Entry, error) {
	e := sample.Entry{Name: name + "/" + s.Key, Version: shard.Version, Shard: shard, Parts: make([]sample.Part, 0, len(s.Parts)), Offsets: make([]uint64, 0, len(s.Parts))}
	first, size := firstPart(s.Parts), int64(0)
	if chosen != "" {
		if first = slices.IndexFunc(s.Parts, func(p tarshard.Part) bool { return p.Ext == chosen }); first < 0 {
			return e, &SampleError{e.Name, "list", fmt.Errorf("it has no part %s: choose another --part, or give all samples one", clip(chosen))}
		}
	}
	add := func(p tarshard.Part) {
		ext, known := exts[p.Ext]
		if !known {
			ext = strings.Clone(p.Ext)
			exts[ext] = ext
		}
		e.Parts, e.Offsets = append(e.Parts, sample.Part{Ext: ext, Size: uint32(p.Size)}), append(e.Offsets, uint64(p.Off))
		size += min(p.Size, math.MaxUint32+1) // so that no sum is too large
	}
	add(s.Parts[first])
	for i, p := range s.Parts {
		if i != first {
			add(p)
		}
	}
	if size > math.MaxUint32 {
		return e, &SampleError{e.Name, "list", fmt.Errorf("its %d parts have more than 4 GiB: split it", len(s.Parts))}
	}
	e.Size = uint32(size)
	return e, nil
}

// firstPart is the part that a sample is about: the first that only describes nothing.
func firstPart(parts []tarshard.Part) int {
	for _, lesser := range [][]string{{"cls", "json", "txt"}, {"cls"}} {
		if i := slices.IndexFunc(parts, func(p tarshard.Part) bool { return !slices.Contains(lesser, p.Ext) }); i >= 0 {
			return i
		}
	}
	return 0
}

// labelled is what a sample says about its label.
type labelled struct {
	text string // of its part cls
	has  bool   // it has such a part
	long bool   // and that is longer than any number
}

func labelOf(s *tarshard.Sample) labelled {
	for _, p := range s.Parts {
		if p.Ext == "cls" {
			return labelled{text: strings.Clone(p.Text), has: true, long: p.Size > tarshard.MaxText}
		}
	}
	return labelled{}
}

// label gives samples their labels, by their parts cls or by their folders.
func label(entries []sample.Entry, texts []labelled) (classes []string, err error) {
	with := slices.IndexFunc(texts, func(l labelled) bool { return l.has })
	without := slices.IndexFunc(texts, func(l labelled) bool { return !l.has })
	if with < 0 {
		return labelFolders(entries)
	}
	if without >= 0 {
		return nil, fmt.Errorf("sample %s has a part cls, and %s has none: give all of them one, or a file of labels (--labels)", clip(entries[with].Name), clip(entries[without].Name))
	}
	for i, l := range texts {
		n, err := strconv.ParseInt(strings.TrimSpace(l.text), 10, 32)
		if l.long || err != nil {
			return nil, &SampleError{entries[i].Name, "list", fmt.Errorf("its part cls is %s, which is no integer of 32 bits: correct it, or give a file of labels (--labels), or --flat", l)}
		}
		entries[i].Label = int32(n)
	}
	return nil, nil
}

func (l labelled) String() string {
	if l.long {
		return fmt.Sprintf("a text of more than %d bytes", tarshard.MaxText)
	}
	return strconv.Quote(l.text)
}

// labelFolders labels samples by the folders of their members. Their names are taken apart behind that of the shard.
func labelFolders(entries []sample.Entry) (classes []string, err error) {
	folderOf := func(e *sample.Entry) string { return tarshard.Folder(e.Name[len(e.Shard.Name)+1:]) }
	place := map[string]int32{}
	bare := -1
	for i := range entries {
		if f := folderOf(&entries[i]); f == "" {
			bare = i
		} else if _, known := place[f]; !known {
			place[f] = 0
			classes = append(classes, f)
		}
	}
	if classes == nil {
		return nil, nil
	}
	if bare >= 0 {
		return nil, fmt.Errorf("sample %s lies in no folder, and others do, so that their folders can't be the labels: give a file of labels (--labels), or --flat", clip(entries[bare].Name))
	}
	slices.SortFunc(classes, comparePython)
	for i, f := range classes {
		place[f] = int32(i)
	}
	for i := range entries {
		entries[i].Label = place[folderOf(&entries[i])]
	}
	return classes, nil
}
