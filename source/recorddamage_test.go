package source_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"lcache/source"
	"lcache/source/sourcetest"
)

// damagedSamples are small, so that every byte of a file can be damaged, and most bytes are not data.
func damagedSamples() (samples [2][][]byte) {
	for s := range samples {
		for i, size := range []int{40, 7, 1, 0, 90, 13} {
			samples[s] = append(samples[s], sourcetest.Content(byte(10*s+i), size))
		}
	}
	return samples
}

func damagedFormats(t testing.TB) (all []*formatted) {
	for _, k := range fileKinds(t) {
		f := &formatted{kind: k.name, pattern: "t-{0..1}" + k.end, flags: k.flags}
		if k.name == "megatron" {
			f.pattern = "t-{0..1}"
		}
		all = append(all, inEach(damagedSamples(), f, k.write))
	}
	return all
}

// mostAllocated bounds the memory that listing and reading a damaged file of a few kilobytes may take, in bytes.
const mostAllocated = 24 << 20

// A damagedCase is a damaged file that was listed, and the names and bytes of the samples that were read from it, in hexadecimal digits. A sample that could not
// be read is null.
type damagedCase struct {
	Kind    string    `json:"kind"`
	File    string    `json:"file"`
	What    string    `json:"what"`
	Samples []*string `json:"samples"`
	Names   []string  `json:"names"`
}

// readDamaged lists and reads a dataset whose first shard is damaged. Each error must name that shard, or its index. It returns nil if the listing was an
// error, and otherwise the samples of the first shard.
func readDamaged(t *testing.T, f *formatted, dir, file, what string) *damagedCase {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer func() {
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > mostAllocated {
			t.Errorf("%s: %s took %d MB of memory", f.kind, what, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
	}()
	src, err := source.Open(f.kind+":"+dir+"/"+f.pattern, source.Options{Records: f.flags})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	stem := strings.TrimSuffix(file, filepath.Ext(file))
	wantNamed := func(err error) {
		if text := err.Error(); !strings.Contains(text, stem) || strings.Contains(text, "\n") || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %s: the error %q does not name %s, or has several lines, or came too late", f.kind, what, text, file)
		}
	}
	_, entries, err := src.List(ctx, nil)
	if err != nil {
		wantNamed(err)
		return nil
	}
	c := &damagedCase{Kind: f.kind, What: what, Names: []string{}, Samples: []*string{}}
	for _, e := range entries {
		got := make([]byte, e.Size)
		err := src.Read(ctx, e, got)
		i := slices.Index(f.names, e.Name)
		if !strings.HasPrefix(e.Name, stem+".") { // the other shard is whole
			if err != nil || i < 0 || !bytes.Equal(got, f.want[i]) {
				t.Errorf("%s: %s: %s of another shard has other bytes, or %v", f.kind, what, e.Name, err)
			}
			continue
		}
		c.Names = append(c.Names, hex.EncodeToString([]byte(strings.TrimPrefix(e.Name, f.shard+"/"))))
		if err != nil {
			wantNamed(err)
			c.Samples = append(c.Samples, nil)
			continue
		}
		text := hex.EncodeToString(got)
		c.Samples = append(c.Samples, &text)
	}
	return c
}

// isData reports whether a byte of a file belongs to the data of a sample.
func isData(f *formatted, file []byte, at int) bool {
	for _, w := range f.want {
		w = bytes.TrimSuffix(w, []byte("text")) // the second part of samples in zip archives
		if k := bytes.Index(file, w); len(w) > 4 && k >= 0 && at >= k && at < k+len(w) {
			return true
		}
	}
	return false
}

// TestRecordsDamaged damages files: it flips bytes, and truncates them anywhere. Each damaged file must be an error that names it, or have the samples that
// the format's own library reads. Nothing panics, waits, or takes memory by a number of the file. A change in the data of a sample can't be noticed in
// formats without checksums.
//
// By default it damages a random selection of bytes; with LCACHE_FAULTS=all every byte in three ways, and compares with the libraries, which need .venv.
func TestRecordsDamaged(t *testing.T) {
	python, err := filepath.Abs("../.venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	all := os.Getenv("LCACHE_FAULTS") == "all"
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("LCACHE_SEED"); given != "" {
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("LCACHE_SEED: %v", err)
		}
	}
	t.Logf("LCACHE_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kept := t.TempDir()
	var cases []*damagedCase
	for _, f := range damagedFormats(t) {
		noticed, same, data := 0, 0, 0
		for _, file := range slices.Sorted(maps.Keys(f.files)) {
			if !strings.HasPrefix(file, "t-0.") {
				continue
			}
			tr, whole := newTree(t, f.files), f.files[file]
			damage := func(what string, damaged []byte) {
				if err := tr.Write(file, damaged); err != nil {
					t.Fatal(err)
				}
				c := readDamaged(t, f, tr.dir, file, what)
				switch {
				case c == nil:
					noticed++
				case isWhole(f, c):
					same++
				default:
					data++
					folder := filepath.Join(kept, fmt.Sprint(len(cases)))
					if c.File = filepath.Join(folder, f.shard); all {
						for _, name := range slices.Sorted(maps.Keys(f.files)) {
							if strings.HasPrefix(name, "t-0.") {
								b, err := os.ReadFile(tr.path(name))
								if err = errors.Join(err, os.MkdirAll(folder, 0o777), os.WriteFile(filepath.Join(folder, name), b, 0o666)); err != nil {
									t.Fatal(err)
								}
							}
						}
					}
					cases = append(cases, c)
				}
			}
			for at := range whole {
				if !all && (isData(f, whole, at) || random.IntN(len(whole)) > 60) {
					continue
				}
				flips := []byte{1 << random.IntN(8), 0x80, 0xff}
				if !all {
					flips = flips[:1]
				}
				for _, flip := range flips {
					damaged := bytes.Clone(whole)
					damaged[at] ^= flip
					damage(fmt.Sprintf("byte %d of %s, %#x for %#x", at, file, damaged[at], whole[at]), damaged)
				}
				if all || random.IntN(4) == 0 {
					damage(fmt.Sprintf("%s cut at %d", file, at), whole[:at])
				}
			}
			damage(file+" cut in the middle", whole[:len(whole)/2])
			damage(file+" with a byte more", append(bytes.Clone(whole), 0))
			damage(file+" twice", append(bytes.Clone(whole), whole...))
		}
		t.Logf("%s: %d damages were errors of the listing, %d left all samples as they were, %d changed samples, or only some of them could be read", f.kind, noticed, same, data)
		if noticed == 0 && f.kind != "bin" {
			t.Errorf("%s: no damage was noticed", f.kind)
		}
	}
	if !all {
		return
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/read_records.py")
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("%d damaged files compared with the libraries: %v", len(cases), err)
	}
}

// isWhole reports whether all samples of the first shard were read, with their bytes.
func isWhole(f *formatted, c *damagedCase) bool {
	n := 0
	for i, name := range f.names {
		if !strings.HasPrefix(name, f.shard+"/") {
			continue
		}
		if n >= len(c.Names) || c.Names[n] != hex.EncodeToString([]byte(strings.TrimPrefix(name, f.shard+"/"))) || c.Samples[n] == nil || *c.Samples[n] != hex.EncodeToString(f.want[i]) {
			return false
		}
		n++
	}
	return n == len(c.Names)
}

// TestRecordsReplacedWhileRead: while a program replaces and extends a shard again and again, a sample has the bytes of a version of it, or is an error. Shards of
// Megatron keep their lengths, because nothing shows that a .bin file is new and its .idx file is not.
func TestRecordsReplacedWhileRead(t *testing.T) {
	for _, k := range fileKinds(t) {
		t.Run(k.name, func(t *testing.T) {
			old := map[string][]byte{"c/a": sourcetest.Content(1, 3000), "c/b": sourcetest.Content(2, 5000), "c/c": sourcetest.Content(3, 100)}
			s := newRecordShelf(t, k, old, nil)
			src := openRemote(t, k.name+":"+s.dir+"/"+s.pattern(), source.Options{Records: k.flags})
			more := 64
			if k.name == "megatron" {
				more = 0
			}
			stop, done := make(chan bool), make(chan error, 1)
			go func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						done <- nil
						return
					default:
					}
					name := []string{"c/a", "c/b", "c/c"}[n%3]
					change := s.Write
					if n%2 == 0 {
						change = s.Replace
					}
					if err := change(name, sourcetest.Content(byte(n%3+1+n%2*100), len(old[name])+n%2*more)); err != nil {
						done <- err
						return
					}
				}
			}()
			right, refused := 0, 0
			for range 150 {
				_, entries, err := src.List(t.Context(), nil)
				if err != nil {
					refused++
					continue
				}
				for i, e := range entries {
					got := make([]byte, e.Size)
					if err := src.Read(t.Context(), e, got); err != nil {
						refused++
						continue
					}
					right++
					name := []string{"c/a", "c/b", "c/c"}[i%3]
					a, b := old[name], sourcetest.Content(byte(i+101), len(old[name])+more)
					if want := s.Limits().Stored; want != nil {
						a, b = want(a), want(b)
					}
					if !bytes.Equal(got, a) && !bytes.Equal(got, b) {
						t.Fatalf("sample %d of %d bytes is that of no version", i, len(got))
					}
				}
			}
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
			t.Logf("%d samples were right, %d reads and listings were errors", right, refused)
		})
	}
}
