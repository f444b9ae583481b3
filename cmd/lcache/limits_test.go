package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"lcache/internal/testenv"
)

// TestRefusalNamesEnough takes a refusal at its word: with the number that it names, the same command works.
func TestRefusalNamesEnough(t *testing.T) {
	named := regexp.MustCompile(`give --(budget|memory) (\d+MiB) or more`)
	for _, c := range []struct {
		name  string
		sizes []int
	}{
		{"small samples", []int{100, 2000, 30000}},
		{"a sample of several blocks", []int{900_000, 900_000, 0}},
		{"a large sample", []int{100, 9_000_000}},
		{"many", append(make([]int, 300), 70_000, 80_000)},
	} {
		for _, flag := range []string{"budget", "memory"} {
			t.Run(flag+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				data := testenv.SourceDir(t)
				for i, n := range c.sizes {
					if err := patterned(filepath.Join(data, "a", fmt.Sprint(i)), fmt.Sprint(n)); err != nil {
						t.Fatal(err)
					}
				}
				args := []string{"ingest", "--source", data, "--cache", filepath.Join(diskDir(t), "cache"), "--quiet", "--" + flag}
				var out, refusal bytes.Buffer
				if code := run(append(args, "200kB"), &out, &refusal); code != exitError {
					t.Fatalf("200 kB are enough? exit code %d: %s", code, out.String())
				}
				number := named.FindStringSubmatch(refusal.String())
				if number == nil || number[1] != flag {
					t.Fatalf("no number in %q", refusal.String())
				}
				var again bytes.Buffer
				if code := run(append(args, number[2]), &out, &again); code != exitDone {
					t.Errorf("%sbut with that: exit code %d: %s", refusal.String(), code, again.String())
				}
			})
		}
	}
}
