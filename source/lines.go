package source

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"lcache/sample"
	"lcache/source/internal/object"
	"lcache/source/internal/web"
)

// lines makes samples from a web server's list, in its order. It requests the facts about a resource that its line omits.
type lines struct {
	opts     Options
	store    *web.Store
	reader   *object.Reader
	progress func(int)
	removed  int // lines that Options.Exts excludes
}

// statJobs is the number of resources requested at once. The reader limits them further.
const statJobs = 64

func (l *lines) list(ctx context.Context) (classes []string, entries []sample.Entry, err error) {
	text, err := l.reader.ReadAll(ctx, "", web.MostList)
	if err != nil {
		return nil, nil, err
	}
	list, err := web.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	l.removed = len(list)
	list = slices.DeleteFunc(list, func(line web.Line) bool { return !hasExt(line.Key, l.opts.Exts) })
	l.removed -= len(list)
	if err := l.opts.checkFound(nil, nil, len(list)); err != nil {
		return nil, nil, err
	}
	for _, line := range list {
		if err := l.store.Check(line.Key); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", line.Num, err)
		}
	}
	if err := l.ask(ctx, list); err != nil {
		return nil, nil, err
	}
	entries = make([]sample.Entry, len(list))
	for i, line := range list {
		if err := checkObject(line.Key, line.Size); err != nil {
			return nil, nil, err
		}
		entries[i] = sample.Entry{Name: line.Key, Size: uint32(line.Size), Version: objectVersion(line.Tag, line.Size)}
	}
	if classes, err = l.label(list, entries); err != nil {
		return nil, nil, err
	}
	if l.opts.Group == GroupStem {
		entries, err = groupLines(entries)
	}
	return classes, entries, err
}

// ask requests missing sizes and versions. A line with a size and no ETag is trusted: the checksum of the first read
// decides. It is not trusted if the sample has parts, because its version is made of their versions.
func (l *lines) ask(ctx context.Context, list []web.Line) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(statJobs)
	var mu sync.Mutex // held during calls of progress
	done := 0
	for i := range list {
		line := &list[i]
		if line.Size >= 0 && (line.Tag != "" || l.opts.Group == "") {
			continue
		}
		group.Go(func() error {
			info, err := l.reader.Stat(ctx, line.Key)
			switch {
			case err != nil && ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return &SampleError{line.Key, "list", fmt.Errorf("line %d: %w", line.Num, err)}
			case info.Size < 0:
				return &SampleError{line.Key, "list", fmt.Errorf("line %d: the server does not report its size: write it into the list, after a tab", line.Num)}
			case line.Size >= 0 && line.Size != info.Size:
				return &SampleError{line.Key, "list", fmt.Errorf("line %d: it has %d bytes, but the list says %d", line.Num, info.Size, line.Size)}
			case line.Tag != "" && line.Tag != info.Tag:
				return &SampleError{line.Key, "list", fmt.Errorf("line %d: it has version %s, but the list says %s", line.Num, info.Tag, line.Tag)}
			}
			line.Size, line.Tag = info.Size, info.Tag
			mu.Lock()
			defer mu.Unlock()
			done++
			l.progress(done)
			return nil
		})
	}
	return group.Wait()
}

// label sets the labels of the entries: from the list, or from their folders.
func (l *lines) label(list []web.Line, entries []sample.Entry) (classes []string, err error) {
	given := slices.ContainsFunc(list, func(line web.Line) bool { return line.Label != "" })
	folder := func(line web.Line) (string, bool) {
		if strings.Contains(line.Key, "://") || strings.HasPrefix(line.Key, "/") {
			return "", false
		}
		class, _, ok := strings.Cut(line.Key, "/")
		return class, ok
	}
	inFolders := slices.ContainsFunc(list, func(line web.Line) bool { _, ok := folder(line); return ok })
	if l.opts.Flat || l.opts.Labels != "" || !given && !inFolders {
		return nil, nil
	}
	labels := &labels{entries: entries, index: make(map[string]int, len(entries)), lines: make([]int, len(entries)), place: map[string]int32{}}
	for i := range entries {
		labels.index[entries[i].Name] = i
	}
	for _, line := range list {
		label, ok := line.Label, line.Label != ""
		if !given {
			if label, ok = folder(line); ok {
				label = "/" + label // a folder is a class by its name, even if the name is a number
			}
		}
		if !ok && given {
			return nil, fmt.Errorf("line %d has no label, but other lines have: give each line one, or list the source flat", line.Num)
		}
		if !ok {
			return nil, fmt.Errorf("line %d has no folder, which would be its class, but other lines have: give each line a label, or list the source flat", line.Num)
		}
		if err := labels.take([]string{line.Key, label}, line.Num); err != nil {
			return nil, fmt.Errorf("line %d: %w", line.Num, err)
		}
	}
	classes = labels.sortClasses()
	if !given {
		for i := range classes {
			classes[i] = classes[i][1:]
		}
	}
	return classes, nil
}

// groupLines makes samples from resources with the same folder and stem, each at the position of its first resource.
func groupLines(files []sample.Entry) ([]sample.Entry, error) {
	at := map[string]int{}
	var parts [][]sample.Entry
	for _, f := range files {
		stem, _ := splitStem(f.Name, folderLength(f.Name))
		i, known := at[stem]
		if !known {
			i = len(parts)
			at[stem], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], f)
	}
	samples := files[:0]
	for _, list := range parts {
		label := list[0].Label
		grouped, err := group(list, folderLength(list[0].Name))
		if err != nil {
			return nil, err
		}
		grouped[0].Label = label
		samples = append(samples, grouped[0])
	}
	return samples, nil
}
