package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/source"
)

func TestFlagValues(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var (
		bytes  int64
		words  []string
		cache  []string
		rankNo []int
		part   int
		of     int
		kv     map[string]string
		mode   fileMode
		word   string
	)
	for _, c := range []struct {
		name  string
		value pflag.Value
		text  string
		got   func() any
		want  any // an error message if it is an error
	}{
		{"size", size{&bytes}, "512MiB", func() any { return bytes }, int64(512 << 20)},
		{"size", size{&bytes}, "4GB", func() any { return bytes }, int64(4e9)},
		{"size", size{&bytes}, "4096", func() any { return bytes }, int64(4096)},
		{"size", size{&bytes}, "0", nil, "must be more than 0"},
		{"size", size{&bytes}, "-1", nil, "not a size: write 512MiB, 4GB or a number of bytes"},
		{"size", size{&bytes}, "much", nil, "not a size: write 512MiB, 4GB or a number of bytes"},
		{"size", size{&bytes}, "9.9EiB", nil, "larger than any disk"},
		{"list", list{&words}, ".jpg,.png", func() any { return words }, []string{".jpg", ".png"}},
		{"list", list{&words}, "a,,b", nil, `an empty entry in "a,,b"`},
		{"dirs", dirs{&cache}, "a,/b", func() any { return cache }, []string{filepath.Join(here, "a"), "/b"}},
		{"dirs", dirs{&cache}, "/b/", nil, "/b/ is named twice"},
		{"ranks", ranks{&rankNo}, "0,3", func() any { return rankNo }, []int{0, 3}},
		{"ranks", ranks{&rankNo}, "all", func() any { return len(rankNo) }, 0},
		{"ranks", ranks{&rankNo}, "0,-1", nil, `"-1" is not a rank: write 0,1,2 or all`},
		{"share", share{&part, &of}, "2/4", func() any { return [2]int{part, of} }, [2]int{2, 4}},
		{"share", share{&part, &of}, "4/4", nil, "must be i/N with 0 ≤ i < N, like 0/4"},
		{"share", share{&part, &of}, "-1/4", nil, "must be i/N with 0 ≤ i < N, like 0/4"},
		{"share", share{&part, &of}, "2", nil, "must be i/N with 0 ≤ i < N, like 0/4"},
		{"params", params{&kv}, "range=[5,25,3]", func() any { return kv["range"] }, "[5,25,3]"},
		{"params", params{&kv}, "empty=", func() any { return kv["empty"] }, ""},
		{"params", params{&kv}, "=x", nil, "must be key=value"},
		{"mode", &mode, "0660", func() any { return mode }, fileMode(0o660)},
		{"mode", &mode, "rw", nil, "must be permissions in octal, like 0600"},
		{"choice", &choice{&word, []string{"a", "b"}}, "b", func() any { return word }, "b"},
		{"choice", &choice{&word, []string{"a", "b"}}, "c", nil, "must be one of a, b"},
	} {
		err := c.value.Set(c.text)
		switch {
		case c.got == nil && err == nil:
			t.Errorf("%s %s: no error, want %v", c.name, c.text, c.want)
		case c.got == nil:
			if err.Error() != c.want {
				t.Errorf("%s %s: error %q, want %q", c.name, c.text, err, c.want)
			}
		case err != nil:
			t.Errorf("%s %s: %v", c.name, c.text, err)
		case !reflect.DeepEqual(c.got(), c.want):
			t.Errorf("%s %s: got %v, want %v", c.name, c.text, c.got(), c.want)
		}
	}
}

// A switch of a remote source records whether it was given, on or off.
func TestRemoteSwitches(t *testing.T) {
	for _, c := range []struct {
		args []string
		want source.Remote
	}{
		{nil, source.Remote{}},
		{[]string{"--s3-unsigned", "--source-hedge=false"}, source.Remote{S3: source.S3{Unsigned: true}, NoHedge: true, Given: source.Unsigned | source.NoHedge}},
		{[]string{"--s3-unsigned=false", "--source-hedge", "--s3-path-style=0"}, source.Remote{Given: source.Unsigned | source.NoHedge | source.PathStyle}},
		{[]string{"--http-allow-other-hosts", "--s3-requester-pays"}, source.Remote{S3: source.S3{RequesterPays: true}, OtherHosts: true, Given: source.OtherHosts | source.RequesterPays}},
	} {
		var got source.Remote
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		addRemoteFlags(f, &got)
		if err := f.Parse(c.args); err != nil || got != c.want {
			t.Errorf("%v: %+v, %v; want %+v", c.args, got, err, c.want)
		}
	}
}

// Every command that takes a source takes the flags that say how it is asked.
func TestSourceFlags(t *testing.T) {
	remote := pflag.NewFlagSet("", pflag.ContinueOnError)
	addRemoteFlags(remote, &source.Remote{})
	var commands []string
	for _, cmd := range everyCommand() {
		takes := false
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			what, _ := pflag.UnquoteUsage(f)
			takes = takes || strings.HasSuffix(what, "SRC")
		})
		if !takes {
			continue
		}
		commands = append(commands, cmd.Name())
		remote.VisitAll(func(f *pflag.Flag) {
			if got := cmd.Flags().Lookup(f.Name); got == nil || got.Usage != f.Usage {
				t.Errorf("%s takes a source, and not --%s", cmd.Name(), f.Name)
			}
		})
	}
	slices.Sort(commands)
	if got := strings.Join(commands, " "); got != "doctor ingest plan run verify" {
		t.Errorf("these commands take a source: %s", got)
	}
}

// TestFlagText holds what --help shows as defaults.
func TestFlagText(t *testing.T) {
	bytes, none := int64(2<<30), int64(0)
	some, part, of := []int{0, 2}, 2, 4
	var no []int
	for _, c := range []struct{ got, want string }{
		{size{&bytes}.String(), "2.0 GiB"}, {size{&none}.String(), ""},
		{ranks{&some}.String(), "0,2"}, {ranks{&no}.String(), "all"},
		{share{&part, &of}.String(), "2/4"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	type set struct {
		job    schedule.Job
		memory int64
		io     cache.IO
	}
	parse := func(args []string, env map[string]string) (*set, error) {
		var s set
		f := pflag.NewFlagSet("x", pflag.ContinueOnError)
		addJobFlags(f, &s.job)
		f.Var(size{&s.memory}, "memory", "")
		addIOFlags(f, &s.io)
		f.Bool("version", false, "")
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		return &s, fromEnvironment(f, func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	}
	s, err := parse([]string{"--seed", "3"}, map[string]string{
		"LCACHE_SEED": "4", "LCACHE_BATCH_SIZE": "32", "LCACHE_MEMORY": "1GB", "LCACHE_DROP_LAST": "true",
		"LCACHE_IO": "pread", "LCACHE_RECIPE": "", "LCACHE_VERSION": "yes", "LCACHE_RANKS": "1,2", "LCACHE_PARAM": "shuffle=false",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := set{memory: 1e9, io: cache.IO{Engine: "pread"}, job: schedule.Job{Seed: "3", BatchSize: 32, DropLast: true, Ranks: []int{1, 2}, Params: map[string]string{"shuffle": "false"}}}
	if !reflect.DeepEqual(*s, want) {
		t.Errorf("got %+v, want %+v", *s, want)
	}
	for _, c := range []struct{ name, value, want string }{
		{"LCACHE_MEMORY", "lots", "LCACHE_MEMORY=lots: not a size: write 512MiB, 4GB or a number of bytes"},
		{"LCACHE_IO", "aio", "LCACHE_IO=aio: must be one of auto, uring, pread"},
	} {
		_, err := parse(nil, map[string]string{c.name: c.value})
		if err == nil || err.Error() != c.want || exitCode(err) != exitUsage {
			t.Errorf("got %v (exit %d), want %s", err, exitCode(err), c.want)
		}
	}
}

func TestDirectFromEnvironment(t *testing.T) {
	for value, want := range map[string]string{"": "auto", "0": "off", "1": "on"} {
		got, err := directFromEnvironment(func(string) (string, bool) { return value, value != "" })
		if err != nil || got != want {
			t.Errorf("%q: got %s, %v; want %s", value, got, err, want)
		}
	}
	if _, err := directFromEnvironment(func(string) (string, bool) { return "no", true }); exitCode(err) != exitUsage {
		t.Errorf("got %v, want a usage error", err)
	}
}

func TestAbsoluteSource(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"data/train/":       filepath.Join(here, "data/train"),
		"/data//train":      "/data/train",
		"s3://bucket/a":     "s3://bucket/a/",
		"tar:x-{0..9}.tar":  "tar:" + here + "/x-{0..9}.tar",
		"tar:/d//{a,b}.tar": "tar:/d/{a,b}.tar",
		"tar:s3://b/x.tar":  "tar:s3://b/x.tar",
		"tar:":              "tar:",
		"ranges:i.tsv":      "ranges:" + here + "/i.tsv",
		"ranges:s3://b/i":   "ranges:s3://b/i",
	} {
		if got, err := absoluteSource(source); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", source, got, err, want)
		}
	}
}
