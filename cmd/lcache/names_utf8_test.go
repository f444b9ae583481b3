package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"lcache/internal/jsonbytes"
	"lcache/internal/store/cachedir"
	"lcache/internal/store/ingest"
)

// TestNamesThatAreNotUTF8: source, class folders, extensions and cache may have any names. JSON keeps their bytes, and texts for people show each byte.
func TestNamesThatAreNotUTF8(t *testing.T) {
	s := newStage(t)
	shell := func(command string) (out, errs string) {
		t.Helper()
		out, errs, err := s.shell(`src=$(printf 'src\351') cache=$(printf 'cache\377'); ` + command)
		if err != nil || !utf8.ValidString(out+errs) {
			t.Fatalf("%s: %v\n%q\n%q", command, err, out, errs)
		}
		return out, errs
	}
	shell(`for c in $(printf 'caf\350 caf\351'); do mkdir -p "$src/$c" && echo "$c" > "$src/$c/1.jpg" && echo "$c" > "$src/$c/2$(printf '.J\303')"; done`)
	shell(`lcache ingest --source "$src" --cache "$cache"`)
	if out, _ := shell(`lcache ingest --source "$src" --cache "$cache"`); !strings.Contains(out, `src\xe9 → `) || !strings.Contains(out, `cache\xff  `) || !strings.Contains(out, "4 samples were there already") {
		t.Errorf("ingest again: %s", out)
	}
	var report ingest.Report
	out, _ := shell(`lcache ingest --source "$src" --cache "$cache" --json`)
	if err := jsonbytes.Unmarshal([]byte(out), &report); err != nil || !strings.HasSuffix(report.Source, "/src\xe9") || !strings.HasSuffix(report.Dirs[0], "/cache\xff") || report.Classes != 2 {
		t.Errorf("ingest --json: %+v, %v", report, err)
	}
	if out, _ := shell(`lcache ingest --source "$src" --cache few --ext "$(printf 'j\303')"`); !strings.Contains(out, "2 samples") {
		t.Errorf("ingest of one extension: %s", out)
	}
	var list listing
	out, _ = shell(`lcache ls . --json`)
	if err := jsonbytes.Unmarshal([]byte(out), &list); err != nil || len(list.Caches) != 2 || !strings.HasSuffix(list.Caches[0].Dir, "/cache\xff") || list.Caches[0].Source != report.Source {
		t.Errorf("ls --json: %+v, %v", list, err)
	}
	if c, err := cachedir.Look(report.Dirs[0]); err != nil || c.Files[".j\xc3"] != 2 || c.Files[".jpg"] != 2 {
		t.Errorf("extensions %v, %v", c.Files, err)
	}
	if out, _ := shell(`lcache ls .`); !strings.Contains(out, `cache\xff`) || !strings.Contains(out, `src\xe9`) {
		t.Errorf("ls: %s", out)
	}
	if out, _ := shell(`lcache verify --cache "$cache" --against "$src"`); !strings.Contains(out, "4 good") || !strings.Contains(out, `against  src\xe9: 0 different`) {
		t.Errorf("verify: %s", out)
	}
	if _, errs := shell(`! lcache verify --cache "$cache/none"`); !strings.Contains(errs, `cache\xff/none`) {
		t.Errorf("an error: %s", errs)
	}
	out, errs := shell(`lcache run --source "$src" --cache "$cache" -- sh -c 'lcache status && lcache ls && lcache status --json && python -c "
import lcache, os
with lcache.connect() as job:
    print(*[os.fsencode(text).hex() for text in (*job.classes, *job.names(range(4)), os.path.basename(job.source), job.name, job.stats()[\"jobs\"][0][\"name\"])])
    print(bytes(job.get([3]).samples[0]).hex())"'`)
	for _, want := range []string{`src\xe9 · `, `cache\xff`, `"dirs":`, `/cache\udcff"`, `"source": "` + strings.ReplaceAll(report.Source, "\xe9", `\udce9`) + `"`,
		"636166e8 636166e9 636166e82f312e6a7067 636166e82f322e4ac3 636166e92f312e6a7067 636166e92f322e4ac3 737263e9 737263e9 737263e9\n636166e90a\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("run does not say %s:\n%s\n%s", want, out, errs)
		}
	}
}
