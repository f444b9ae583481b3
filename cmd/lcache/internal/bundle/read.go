package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"regexp"

	"lcache/internal/errcode"
	"lcache/internal/usage"
)

// limits bound an archive. Only tests have others than most.
type limits struct {
	members int
	member  int64 // bytes
	total   int64 // decompressed bytes, with the headers
}

// most is the limits of Read, and of what Collect makes. A bundle of 16 servers has less than 200 members.
var most = limits{members: 512, member: 32 << 20, total: 128 << 20}

// memberName matches the names of members: a file, or a file in the folder of a server.
var memberName = regexp.MustCompile(`^(server-\d{1,3}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Read reads an archive and calls each for each member, in order. Nothing is trusted: sizes and the number of members are bounded, and a member that is
// not a plain file with a plain name is an error.
func Read(archive io.Reader, each func(Member) error) error { return most.read(archive, each) }

func (l limits) read(archive io.Reader, each func(Member) error) error {
	z, err := gzip.NewReader(archive)
	if err != nil {
		return damaged("it is not compressed by gzip")
	}
	bounded := &io.LimitedReader{R: z, N: l.total + 1}
	t := tar.NewReader(bounded)
	seen := map[string]bool{}
	for {
		h, err := t.Next()
		switch {
		case bounded.N <= 0:
			return damaged("it has more than %d MiB", l.total>>20)
		case errors.Is(err, io.EOF):
			if !seen[readme] {
				return damaged("it has no %s", readme)
			}
			return nil
		case err != nil:
			return damaged("member %d: %w", len(seen)+1, err)
		case len(seen) == l.members:
			return damaged("it has more than %d members", l.members)
		case h.Typeflag != tar.TypeReg:
			return damaged("member %q is not a plain file", usage.UTF8(h.Name))
		case !memberName.MatchString(h.Name):
			return damaged("member %q has a name that no member has", usage.UTF8(h.Name))
		case seen[h.Name]:
			return damaged("member %s is in it twice", h.Name)
		case h.Size > l.member:
			return damaged("member %s has %d bytes; the limit is %d MiB", h.Name, h.Size, l.member>>20)
		}
		seen[h.Name] = true
		data, err := io.ReadAll(t)
		switch {
		case bounded.N <= 0:
			return damaged("it has more than %d MiB", l.total>>20)
		case err != nil:
			return damaged("member %s: %w", h.Name, err)
		}
		if err := each(Member{Name: h.Name, Data: data}); err != nil {
			return err
		}
	}
}

// damaged is the error about an archive that is no bundle.
func damaged(format string, args ...any) error {
	return errcode.Errorf(errcode.InputFile, "this is not a bundle of lcache doctor, or it is damaged: %w; have it made and sent again", fmt.Errorf(format, args...))
}
