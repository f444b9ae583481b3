package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"lcache/sample"
	"lcache/source/internal/records"
	"lcache/source/internal/tarshard"
)

// shardFolder is a local directory as a shardStore. A shard is opened, checked and read in the same way as a sample
// of a directory.
type shardFolder struct {
	*dir
	listed []string // the names in a list of files
}

func openFolder(at string, opts Options) (*shardFolder, error) {
	s, err := openDir(at, opts)
	if err != nil {
		return nil, err
	}
	return &shardFolder{dir: s.(*dir)}, nil
}

func (f *shardFolder) names(pattern string) ([]string, error) {
	if pattern == records.Listed {
		return slices.Clone(f.listed), checkNames(f.listed, clip(f.path), f.opts.Stream)
	}
	list, err := tarshard.Expand(pattern)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range list {
		name = path.Clean(name)
		found, err := f.glob(name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, checkNames(all, clip(f.path), f.opts.Stream)
}

// checkNames returns an error for names that shards in a folder can't have.
func checkNames(names []string, folder string, stream bool) error {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if isOdd(name) {
			return fmt.Errorf("shard %s leads out of %s: write the folder that all shards have in common before the first brace", clip(name), folder)
		}
		if seen[name] {
			return fmt.Errorf("shard %s is named twice: correct the pattern", clip(name))
		}
		seen[name] = true
		if err := tarshard.CheckName(name, stream); err != nil {
			return err
		}
	}
	return nil
}

// glob returns the files that match a name with wildcards, sorted. If a file has exactly that name, it is the only
// match.
func (f *shardFolder) glob(name string) ([]string, error) {
	if !strings.ContainsAny(name, "*?[") {
		return []string{name}, nil
	}
	if _, err := os.Lstat(filepath.Join(f.path, name)); err == nil {
		return []string{name}, nil
	}
	found, err := filepath.Glob(filepath.Join(f.path, name))
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid pattern: a [ needs a ]", clip(name))
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no file matches %s in %s: check the pattern", clip(name), clip(f.path))
	}
	for i := range found {
		if found[i], err = filepath.Rel(f.path, found[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, comparePython)
	return found, nil
}

func (f *shardFolder) survey(context.Context, []string) error { return nil }

func (f *shardFolder) openOther(ctx context.Context, name string) (openShard, error) {
	return f.open(ctx, name)
}

func (f *shardFolder) open(_ context.Context, name string) (openShard, error) {
	file, err := f.dir.open(name, asSample)
	if err != nil {
		return nil, advise(err)
	}
	s := &shardFile{dir: f.dir, file: file, name: name}
	st, err := file.stat()
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = fmt.Errorf("it is a folder: name the files in it, such as %s", clip(path.Join(f.path, name)+"/*"))
	} else if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("it is not a regular file: check the pattern")
	}
	if err == nil {
		s.size = st.Size
		s.version, _, err = f.versionOf(file, int(s.size), nil)
	}
	if err != nil {
		file.close()
		return nil, err
	}
	return s, nil
}

// openListed opens a shard if it still has its listed version.
func (f *shardFolder) openListed(ctx context.Context, listed sample.Shard) (openShard, error) {
	s, err := f.open(ctx, listed.Name)
	if err != nil {
		return nil, err
	}
	switch {
	case s.streamed() && s.Version() != listed.Version:
		err = ErrChanged
	case s.streamed():
	case s.Size() != int64(listed.Size):
		err = fmt.Errorf("%w (it has %d bytes, had %d)", ErrChanged, s.Size(), listed.Size)
	case s.Version() != listed.Version:
		err = fmt.Errorf("%w (it was written to, or its link leads to another file)", ErrChanged)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (f *shardFolder) is(ctx context.Context, listed sample.Shard) (same, outside bool) {
	o, err := f.openListed(ctx, listed)
	if err != nil {
		return false, false
	}
	defer o.close()
	return true, o.outside()
}

func (f *shardFolder) check(ctx context.Context, listed sample.Shard) error {
	o, err := f.openListed(ctx, listed)
	if err == nil {
		o.close()
	}
	return err
}

// shardFile is a shard that is a file.
type shardFile struct {
	dir     *dir
	file    openFile
	name    string
	size    int64
	version uint64
}

func (s *shardFile) Size() int64     { return s.size }
func (s *shardFile) Version() uint64 { return s.dir.opts.packedVersion(s.name, s.size, s.version) }
func (s *shardFile) Piece() int      { return 1 << 20 }
func (s *shardFile) streamed() bool  { return s.dir.opts.isPacking(s.name) }
func (s *shardFile) stream(ctx context.Context) io.ReadCloser {
	return &inOrder{ctx: ctx, shard: s, size: s.size}
}

func (s *shardFile) close() { s.file.close() }
func (s *shardFile) outside() bool {
	return s.file.linked && s.dir.reach(Directly, s.name) == Outside
}

// ReadAt checks the file again after the read, so that the bytes belong to the version that was opened.
func (s *shardFile) ReadAt(ctx context.Context, dst []byte, off int64) error {
	for at := 0; at < len(dst) || at == 0; at += readChunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := s.file.readAt(dst[at:min(at+readChunk, len(dst))], off+int64(at))
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w (it ends at %d bytes, had %d)", ErrChanged, off+int64(at+n), s.size)
		}
		if err != nil {
			return advise(err)
		}
	}
	_, _, err := s.dir.versionOf(s.file, int(s.size), &s.version)
	return err
}
