package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/store/cache"
	"lcache/internal/testenv"
)

// TestRunSaysWhenItWasListed: a run that uses a complete cache without listing its source says when that was listed. One that lists says nothing of the kind.
func TestRunSaysWhenItWasListed(t *testing.T) {
	testenv.AnyIO(t)
	var listings atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := strings.Repeat(r.URL.Path, 20)
		if r.URL.Path == "/LIST" {
			listings.Add(1)
			text = "a/1\nb/2\n"
		}
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), strings.NewReader(text))
	}))
	defer srv.Close()
	s := newStage(t)
	run := "lcache run --source " + srv.URL + "/LIST --cache cache %s-- echo ran"
	for _, c := range []struct {
		command string
		lists   int64
		says    bool
	}{
		{"lcache ingest --source " + srv.URL + "/LIST --cache cache", 1, false},
		{fmt.Sprintf(run, ""), 0, true},
		{fmt.Sprintf(run, "--relist "), 1, false},
		{fmt.Sprintf(run, "--quiet "), 0, false},
	} {
		before := listings.Load()
		_, errs, err := s.shell(c.command)
		if err != nil {
			t.Fatalf("%s: %v: %s", c.command, err, errs)
		}
		record, err := cache.ReadRecord(strings.TrimSuffix(s.root, "root") + "work/cache")
		if err != nil || record.Listed.IsZero() {
			t.Fatalf("record %+v, %v", record, err)
		}
		want := "\nlisted    " + record.Listed.UTC().Format("2006-01-02 15:04:05") + " UTC; not listed again, because the cache is complete (--relist lists it)\n"
		if lists := listings.Load() - before; lists != c.lists || strings.Contains(errs, want) != c.says || strings.Contains(errs, "listed  ") != c.says {
			t.Errorf("%s: listed %d times, want %d; says %q, want it to say %t:%s", c.command, lists, c.lists, errs, c.says, want)
		}
	}
}

// TestRunNamesThePatternOfShards: a run over a folder of shards names the pattern that takes the samples in them. A run of that pattern does not.
func TestRunNamesThePatternOfShards(t *testing.T) {
	s := newStage(t)
	for _, c := range []struct {
		source string
		says   bool
	}{{"shards", true}, {"'tar:shards/*.tar'", false}} {
		_, errs, err := s.shell("mkdir -p shards && echo 1 > a.cls && tar -cf shards/0.tar a.cls && lcache run --source " + c.source + " --cache root -- echo ran")
		if says := strings.Contains(errs, "\n! each sample is a whole tar file: --source 'tar:") && strings.Contains(errs, "/shards/*.tar' takes the samples in them\n"); err != nil || says != c.says {
			t.Errorf("%s: %v, %q; want it to name the pattern: %t", c.source, err, errs, c.says)
		}
	}
}

// TestHintsComeBeforeReading: ingest warns that files are not samples before it reads any of them. Here it ends after the listing, for lack of space. Its dry run and run do the same.
func TestHintsComeBeforeReading(t *testing.T) {
	s := newStage(t)
	if _, errs, err := s.shell("mkdir -p tables shards && echo 1 > a.cls && tar -cf shards/0.tar a.cls && cp shards/0.tar shards/1.tar && echo 1 > tables/0.parquet && echo 2 > tables/1.parquet && truncate -s 1G large.npy"); err != nil {
		t.Fatal(err, errs)
	}
	tables := "! each sample is a whole .parquet file: give \"parquet:" + strings.TrimSuffix(s.root, "root") + "work/tables/*.parquet\" as the source to read the records in them\n"
	shards := "! each sample is a whole tar file: --source 'tar:" + strings.TrimSuffix(s.root, "root") + "work" + "/shards/*.tar' takes the samples in them\n"
	for _, c := range []struct {
		source, flags, want string
		fails               bool
	}{
		{"tables", "--budget 1kB", tables, true},
		{"tables", "--dry-run", tables, false},
		{"shards", "--budget 1kB", shards, true},
		{"shards", "--dry-run", shards, false},
	} {
		out, errs, err := s.shell("lcache ingest --source " + c.source + " --cache none " + c.flags)
		if (err != nil) != c.fails || strings.Count(out+errs, c.want) != 1 {
			t.Errorf("ingest --source %s %s: %v, %q, want %q", c.source, c.flags, err, out+errs, c.want)
		}
	}
	if _, errs, err := s.shell("lcache run --source tables --cache root -- echo ran"); err != nil || strings.Count(errs, tables) != 1 {
		t.Errorf("run: %v, %q, want %q", err, errs, tables)
	}
	if out, errs, err := s.shell("lcache ingest --source tables --cache full --json"); err != nil || strings.Contains(errs, "!") || !strings.Contains(out, `"records": "each sample is a whole .parquet file`) {
		t.Errorf("ingest --json: %v, %q %q", err, out, errs)
	}
	if _, errs, err := s.shell("lcache ingest --source large.npy --cache none"); err == nil || !strings.Contains(errs, "it is a file: did you mean \"npy:") {
		t.Errorf("a file as the source: %v, %q", err, errs)
	}
}

// TestRunSaysWhatTheFirstEpochCosts: a run over shards on a web server that no ingest has read says before its command how many requests the first epoch will
// take, and which line takes fewer. That line keeps the cache, and after it nothing is said.
func TestRunSaysWhatTheFirstEpochCosts(t *testing.T) {
	s := newStage(t)
	if _, errs, err := s.shell("mkdir -p many && for i in $(seq 1000 1149); do echo $i > many/$i.txt; done && tar -cf 0.tar -C many ."); err != nil {
		t.Fatal(err, errs)
	}
	shard, err := os.ReadFile(strings.TrimSuffix(s.root, "root") + "work/0.tar")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "", time.Unix(1_700_000_000, 0), bytes.NewReader(shard))
	}))
	defer srv.Close()
	run := "lcache run --source tar:" + srv.URL + "/0.tar --cache root --budget 123MB --recipe torch.distributed_sampler --seed 5 --batch-size 8 --param shuffle=true --source-hedge=false -- echo ran"
	out, errs, err := s.shell(run)
	said := regexp.MustCompile(`(?m)^! the first epoch requests each sample from the source: 150 GETs for 750 B; an ingest before it needs only 1 GET: (lcache ingest .*)$`).FindStringSubmatch(errs)
	if err != nil || said == nil || !strings.Contains(out, "ran") {
		t.Fatalf("%v: %q", err, errs)
	}
	for _, part := range []string{" --budget=123000000 ", " --recipe=torch.distributed_sampler ", " --seed=5 ", " --batch-size=8 ", " --param=shuffle=true ", " --source-hedge=false"} {
		if !strings.Contains(said[1]+" ", part) {
			t.Errorf("%q lacks %q", said[1], part)
		}
	}
	if out, errs, err = s.shell(said[1]); err != nil || !strings.Contains(out, "150 samples") || strings.Contains(errs+out, "made again") {
		t.Fatalf("%s: %v %q %q", said[1], err, out, errs)
	}
	if _, errs, err = s.shell(run); err != nil || strings.Contains(errs, "GET") {
		t.Errorf("after it: %v, %q", err, errs)
	}
}

// TestSaysWhatIsLeftOut: ingest, its dry run, and run say in one line how many files belong to no sample, also when nothing has changed since; and nothing where all do.
func TestSaysWhatIsLeftOut(t *testing.T) {
	s := newStage(t)
	if _, errs, err := s.shell("mkdir -p own/a flat && echo 1 > own/a/1.txt && echo 1 > flat/1 && echo 2 > own/top && echo 3 > own/README && tar -cf own.tar own/a/1.txt own/top own/README && " +
		"touch -d '1 hour ago' own own/a"); err != nil {
		t.Fatal(err, errs)
	}
	const files, members = "! 2 files are left out: not in a class folder; --flat takes all files, as one list\n", "! 2 members of the shards are left out: only names such as KEY.EXT make samples\n"
	for _, c := range []struct{ command, want string }{
		{"lcache ingest --source own --cache own-cache --dry-run", files},
		{"lcache ingest --source own --cache own-cache", files},
		{"lcache ingest --source own --cache own-cache", files},
		{"lcache ingest --source own --cache own-cache --json", `"left_out": 2`},
		{"lcache run --source own --cache root -- echo ran", files},
		{"lcache ingest --source own --cache flat-cache --flat", ""},
		{"lcache ingest --source flat --cache one", ""},
		{"lcache ingest --source tar:own.tar --cache tar", members},
		{"lcache ingest --source tar:own.tar --cache tar", members},
	} {
		out, errs, err := s.shell(c.command)
		if said := out + errs; err != nil || !strings.Contains(said, c.want) || strings.Contains(said, "left") != (c.want != "") {
			t.Errorf("%s: %v, says\n%s\nwant %q", c.command, err, said, c.want)
		}
	}
}
