package source

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"lcache/source/internal/tarshard"
)

// A list of files is a source KIND:@FILE. FILE has the path of one shard in each line, in the order of the samples: absolute, or relative to
// FILE's folder. Empty lines do not count. A path may have any byte except NUL and the end of a line, and wildcards and braces in it mean
// nothing. The names of the shards are their paths below the folder that all have in common. The Python client reads the same lists:
// python/lcache/_client/filelists.py.

// listMark begins the pattern of a list of files.
const listMark = "@"

const (
	mostListBytes = 64 << 20
	mostPath      = 4095 // PATH_MAX without the NUL
)

// fileList is a list of files that was read.
type fileList struct {
	folder string   // the folder that all files have in common, absolute
	names  []string // relative to it
	digest [sha256.Size]byte
}

// listPath returns the path of FILE in a source KIND:@FILE.
func listPath(src string) (file string, ok bool) {
	kind := Scheme(src)
	if kind == "" {
		return "", false
	}
	return strings.CutPrefix(src[len(kind):], listMark)
}

// ListIdentity returns the Identity of a source KIND:@FILE, which follows from the paths in the list and their order, and not from FILE's name.
// Its last name is that of the folder that all files have in common. For other sources, and if the list can't be read, it returns src.
func ListIdentity(src string) string {
	file, ok := listPath(src)
	if !ok {
		return src
	}
	l, err := readList(file)
	if err != nil {
		return src
	}
	return l.identity(Scheme(src))
}

// IdentityOfList returns the Identity of a source KIND:@FILE, as it was opened; "": it is another source.
func IdentityOfList(s Source) string {
	if _, ok := listPath(s.String()); !ok {
		return ""
	}
	return s.Identity()
}

func (l *fileList) identity(kind string) string {
	return kind + listMark + hex.EncodeToString(l.digest[:]) + "/" + strings.TrimPrefix(path.Base(l.folder), "/")
}

// readList reads a list of files.
func readList(file string) (l *fileList, err error) {
	b, err := listBytes(file)
	if err == nil {
		var at string
		if at, err = filepath.Abs(filepath.Dir(file)); err == nil {
			l, err = parseList(b, at)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", clip(file), err)
	}
	return l, nil
}

func listBytes(file string) ([]byte, error) {
	if file == "" {
		return nil, errors.New("it has no name: give KIND:@FILE, a file with the path of one shard in each line")
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: put the list back, or name another", cause(err))
	}
	defer f.Close()
	switch st, err := f.Stat(); {
	case err != nil:
		return nil, cause(err)
	case !st.Mode().IsRegular():
		return nil, errors.New("it is not a regular file: write the paths into one, because they are read again later")
	}
	b, err := io.ReadAll(io.LimitReader(f, mostListBytes+1))
	if err == nil && len(b) > mostListBytes {
		err = fmt.Errorf("it has more than %d MiB: it is not a list of files", mostListBytes>>20)
	}
	return b, err
}

// parseList parses a list whose relative paths are below the folder at.
func parseList(b []byte, at string) (*fileList, error) {
	l := &fileList{}
	var paths []string
	seen := map[string]int{}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	for num := 1; len(b) > 0; num++ {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		b = rest
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
			continue
		}
		p, err := listLine(string(line), at)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", num, err)
		case seen[p] > 0:
			return nil, fmt.Errorf("line %d: %s is already in line %d: name each file once", num, clip(p), seen[p])
		case len(paths) == tarshard.MaxShards:
			return nil, fmt.Errorf("line %d: it names more than %d files", num, tarshard.MaxShards)
		}
		seen[p] = num
		paths = append(paths, p)
	}
	if len(paths) == 0 {
		return nil, errors.New("it is empty: give it the path of one file in each line")
	}
	l.folder = path.Dir(paths[0])
	hash := sha256.New()
	for _, p := range paths {
		for !isBelow(p, l.folder) {
			l.folder = path.Dir(l.folder)
		}
		io.WriteString(hash, p+"\n")
	}
	hash.Sum(l.digest[:0])
	for _, p := range paths {
		l.names = append(l.names, strings.TrimPrefix(p[len(l.folder):], "/"))
	}
	return l, nil
}

// listLine returns the absolute path in a line.
func listLine(line, at string) (string, error) {
	switch {
	case strings.IndexByte(line, 0) >= 0:
		return "", errors.New("it has a NUL: it is not a list of files")
	case len(line) > mostPath:
		return "", fmt.Errorf("it has %d bytes, more than a path can have: give each file a line of its own", len(line))
	case strings.Contains(line, "://"):
		return "", fmt.Errorf("%s is an address: a list has files of this machine, and braces name files over a network", clip(withoutSecrets(line)))
	}
	p := line
	if !path.IsAbs(p) {
		p = path.Join(at, p)
	}
	if p = path.Clean(p); p == "/" {
		return "", fmt.Errorf("%s is not a file", clip(line))
	}
	return p, nil
}

// isBelow reports whether a path is in a folder, or below.
func isBelow(p, folder string) bool {
	return folder == "/" || strings.HasPrefix(p, folder) && len(p) > len(folder) && p[len(folder)] == '/'
}
