package sample

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestNamesThatCollide: names whose hashes were made to begin alike are refused: each look-up would go through all of them.
func TestNamesThatCollide(t *testing.T) {
	alike := func(n int) (entries []Entry) {
		for i := 0; len(entries) < n; i++ {
			if name := fmt.Sprint(i); NameHash(name)>>56 == 0 {
				entries = append(entries, Entry{Name: name})
			}
		}
		return entries
	}
	path := filepath.Join(t.TempDir(), "manifest")
	if _, err := WriteManifest(path, nil, alike(mostCrowd)); err != nil {
		t.Error(err)
	}
	_, err := WriteManifest(path, nil, alike(mostCrowd+1))
	if !errors.Is(err, ErrEntry) || !strings.Contains(err.Error(), "the hashes of 257 names begin alike, at most 256") {
		t.Errorf("%v", err)
	}
	double := append(alike(mostCrowd+1), Entry{Name: alike(1)[0].Name})
	if _, err := WriteManifest(path, nil, double); err == nil || !strings.Contains(err.Error(), "samples 0 and 257 have the same name") {
		t.Errorf("%v, want the two samples", err)
	}
}

// TestMostParts: a sample has at most 65,535 parts.
func TestMostParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest")
	e := Entry{Name: "a"}
	for i := range MaxParts {
		e.Parts = append(e.Parts, Part{Ext: fmt.Sprint(i)})
	}
	if _, err := WriteManifest(path, nil, []Entry{e}); err != nil {
		t.Error(err)
	}
	e.Parts = append(e.Parts, Part{Ext: "more"})
	if _, err := WriteManifest(path, nil, []Entry{e}); !errors.Is(err, ErrEntry) || !strings.Contains(err.Error(), "it has 65536 parts, at most 65535: split it") {
		t.Errorf("%v", err)
	}
}
