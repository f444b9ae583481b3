package sample

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// BenchmarkOpen14M measures the cost of opening and of an index with the samples of ImageNet-21k: run it with -benchtime 1x.
func BenchmarkOpen14M(b *testing.B) {
	const n = 14_000_000
	path := filepath.Join(b.TempDir(), "manifest")
	fp, err := WriteManifest(path, []string{"0"}, syntheticEntries(n))
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m, err := OpenManifest(path)
			if err != nil {
				b.Fatal(err)
			}
			if m.Len() != n || m.Fingerprint() != fp {
				b.Fatal("another manifest")
			}
			m.Close()
		}
	})
	m, err := OpenManifest(path)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	b.Run("index", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			newHashIndex(m.hashes)
		}
	})
	m.byName()
	names := make([]string, 1000)
	for i := range names {
		if names[i], err = m.Name(Index(i * (n / len(names)))); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("lookup", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, found, err := m.Lookup(names[i%len(names)]); !found || err != nil {
				b.Fatal(found, err)
			}
		}
	})
	b.Run("name", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			if _, err := m.Name(Index(i * 7_919_000_003 % n)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// syntheticEntries have names like ImageNet's; all of them share one string's memory.
func syntheticEntries(n int) []Entry {
	var all strings.Builder
	ends := make([]int, n)
	for i := range n {
		fmt.Fprintf(&all, "n%08d/n%08d_%d.JPEG", i/1000, i/1000, i)
		ends[i] = all.Len()
	}
	entries := make([]Entry, n)
	from := 0
	for i, to := range ends {
		entries[i] = Entry{Name: all.String()[from:to], Size: 100_000 + uint32(i%5000), Label: int32(i / 1000), Version: uint64(1_700_000_000_000_000_000 + i)}
		from = to
	}
	return entries
}

func BenchmarkWrite(b *testing.B) {
	const n = 1_000_000
	entries := syntheticEntries(n)
	path := filepath.Join(b.TempDir(), "manifest")
	for b.Loop() {
		if _, err := WriteManifest(path, nil, entries); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSums(b *testing.B) {
	const n = 14_000_000
	s, err := OpenSums(filepath.Join(b.TempDir(), "sums"), Fingerprint{}, n)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.Run("set", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i++ {
			s.Set(Index(i%n), i)
		}
	})
	b.Run("get", func(b *testing.B) {
		known := 0
		for i := uint64(0); b.Loop(); i++ {
			if _, ok := s.Get(Index(i * 7_919_000_003 % n)); ok {
				known++
			}
		}
	})
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			s.Known()
		}
	})
}

// BenchmarkForms measures the cost of writing and opening a manifest that is held in memory, plain and packed.
func BenchmarkForms(b *testing.B) {
	for _, n := range []int{125_000, 1_000_000} {
		entries := Entries(syntheticEntries(n))
		for name, write := range map[string]func(string, []string, Listing) (Fingerprint, error){"plain": WriteListing, "packed": WritePacked} {
			path := filepath.Join(b.TempDir(), "manifest")
			b.Run(fmt.Sprintf("write/%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if _, err := write(path, nil, entries); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("open/%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				var bytes uint64
				for b.Loop() {
					m, err := OpenManifest(path)
					if err != nil {
						b.Fatal(err)
					}
					bytes = m.FileBytes()
					m.Close()
				}
				b.ReportMetric(float64(bytes)/float64(n), "B/sample")
			})
		}
	}
}
