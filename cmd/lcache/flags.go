package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/source"
)

// size is a flag of bytes: 512MiB, 4GB, or a bare number.
type size struct{ to *int64 }

func (s size) Type() string { return "SIZE" }
func (s size) String() string {
	if s.to == nil || *s.to == 0 {
		return ""
	}
	return humanize.IBytes(uint64(*s.to))
}

func (s size) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	switch {
	case err != nil:
		return fmt.Errorf("not a size: write 512MiB, 4GB or a number of bytes")
	case n == 0:
		return fmt.Errorf("must be more than 0")
	case n > math.MaxInt64:
		return fmt.Errorf("larger than any disk")
	}
	*s.to = int64(n)
	return nil
}

// list is a flag of words with commas between them. A second use adds to the list.
type list struct{ to *[]string }

func (l list) Type() string { return "LIST" }
func (l list) String() string {
	if l.to == nil {
		return ""
	}
	return strings.Join(*l.to, ",")
}

func (l list) Set(text string) error {
	for _, word := range strings.Split(text, ",") {
		if word == "" {
			return fmt.Errorf("an empty entry in %q", text)
		}
		*l.to = append(*l.to, word)
	}
	return nil
}

// dirs is a list of directories. It makes them absolute, because a server may outlive the shell's working directory.
type dirs struct{ to *[]string }

func (d dirs) Type() string   { return "DIR[,DIR...]" }
func (d dirs) String() string { return list(d).String() }
func (d dirs) Set(text string) error {
	var words []string
	if err := (list{&words}).Set(text); err != nil {
		return err
	}
	for _, w := range words {
		abs, err := filepath.Abs(w)
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
		if slices.Contains(*d.to, abs) {
			return fmt.Errorf("%s is named twice", w)
		}
		*d.to = append(*d.to, abs)
	}
	return nil
}

// grouping is a flag of how files make samples: "none" is kept as "".
type grouping struct{ to *string }

func (g grouping) Type() string { return "none|stem" }
func (g grouping) String() string {
	if g.to == nil || *g.to == "" {
		return "none"
	}
	return *g.to
}

func (g grouping) Set(text string) error {
	switch text {
	case "none":
		*g.to = ""
	case source.GroupStem:
		*g.to = text
	default:
		return fmt.Errorf("must be none or %s", source.GroupStem)
	}
	return nil
}

// file is a flag that names a file. It makes the name absolute, because the cache keeps it.
type file struct{ to *string }

func (f file) Type() string { return "FILE" }
func (f file) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

func (f file) Set(text string) (err error) {
	if text == "" {
		return fmt.Errorf("empty file name")
	}
	if *f.to, err = filepath.Abs(text); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// absoluteSource makes the path of a directory, of tar shards or of records absolute, because a server with another working directory opens it again. A source with another
// scheme stays as it is.
func absoluteSource(text string) (string, error) {
	scheme := source.Scheme(text)
	path := strings.TrimPrefix(text, scheme)
	if list, ok := strings.CutPrefix(path, "@"); ok && scheme != "" {
		scheme, path = scheme+"@", list
	}
	if strings.Contains(text, "://") || scheme != "" && path == "" {
		return source.Canonical(text), nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	return scheme + abs, nil
}

// ranks is a flag of rank numbers, or "all", which is an empty list.
type ranks struct{ to *[]int }

func (r ranks) Type() string { return "R[,R...]|all" }
func (r ranks) String() string {
	if r.to == nil || len(*r.to) == 0 {
		return "all"
	}
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(*r.to)), ","), "[]")
}

func (r ranks) Set(text string) error {
	*r.to = nil
	if text == "all" {
		return nil
	}
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 {
			return fmt.Errorf("%q is not a rank: write 0,1,2 or all", word)
		}
		*r.to = append(*r.to, n)
	}
	return nil
}

// share is a flag "i/N": the i-th of N parts, counted from 0 as ranks are.
type share struct{ part, of *int }

func (s share) Type() string { return "i/N" }
func (s share) String() string {
	if s.of == nil || *s.of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", *s.part, *s.of)
}

func (s share) Set(text string) error {
	a, b, ok := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil || i < 0 || i >= n {
		return fmt.Errorf("must be i/N with 0 ≤ i < N, like 0/4")
	}
	*s.part, *s.of = i, n
	return nil
}

// params is a flag of key=value, given once for each key; a value may hold commas.
type params struct{ to *map[string]string }

func (p params) Type() string   { return "k=v" }
func (p params) String() string { return "" }
func (p params) Set(text string) error {
	k, v, ok := strings.Cut(text, "=")
	if !ok || k == "" {
		return fmt.Errorf("must be key=value")
	}
	if *p.to == nil {
		*p.to = map[string]string{}
	}
	(*p.to)[k] = v
	return nil
}

// addJobFlags adds the flags of a job's order. None of them is needed.
func addJobFlags(flags *pflag.FlagSet, job *schedule.Job) {
	flags.StringVar(&job.Recipe, "recipe", "", "`NAME` of the shuffle; lcache order --list shows all (default: none)")
	flags.StringVar(&job.Seed, "seed", "", "seed `S` of the shuffle (default: the recipe's)")
	flags.IntVar(&job.Epochs, "epochs", 0, "number of epochs; 0 if unknown")
	flags.IntVar(&job.BatchSize, "batch-size", 0, "samples per batch of one rank, as in the DataLoader")
	flags.IntVar(&job.World, "world-size", 0, "number of ranks on all machines (default 1)")
	flags.Var(ranks{&job.Ranks}, "ranks", "ranks that read on this machine")
	flags.BoolVar(&job.DropLast, "drop-last", false, "drop_last of the recipe: leave out the incomplete last batch")
	flags.Var(params{&job.Params}, "param", "another parameter of the recipe; repeatable")
}

// withoutRecipe returns a remark that names the given flags which have no effect without a recipe; "": there are none.
func withoutRecipe(flags *pflag.FlagSet, job schedule.Job) string {
	var given []string
	for _, name := range []string{"seed", "drop-last", "param"} {
		if job.Recipe == "" && flags.Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) == 0 {
		return ""
	}
	return "! no effect without --recipe: " + strings.Join(given, ", ")
}

// addListingFlags adds the flags that say which files of a source are samples, and which labels they have.
func addListingFlags(flags *pflag.FlagSet, o *ingest.Options) {
	flags.Var(list{&o.Exts}, "ext", "file name endings to include, like .jpg,.png")
	flags.BoolVar(&o.Flat, "flat", false, "one sorted list with label 0, without class folders")
	flags.BoolVar(&o.AllowEmpty, "allow-empty", false, "accept empty class folders")
	flags.Var(grouping{&o.Group}, "group", "stem: one sample per name up to its first dot")
	flags.StringVar(&o.Part, "part", "", "first part `NAME` of each sample (in a tar: not labels)")
	addStreamFlag(flags, &o.Stream)
	flags.Var(file{&o.Labels}, "labels", "CSV `FILE` of name,label instead of labels from folders")
	addRecordFlags(flags, &o.Records)
	addLinkFlags(flags, &o.FollowLinks,
		"follow links that leave the source, even with --socket-group",
		"treat a link that leaves the source as an error")
}

// addRecordFlags adds the flags of sources of records.
func addRecordFlags(flags *pflag.FlagSet, to *source.RecordFlags) {
	for _, f := range source.AllRecordFlags {
		flags.Var(recordFlag{f.Name, to}, f.Name, f.Usage)
	}
}

// recordFlag is a flag of a source of records.
type recordFlag struct {
	name string
	to   *source.RecordFlags
}

func (f recordFlag) Type() string   { return "string" }
func (f recordFlag) String() string { return "" }
func (f recordFlag) Set(text string) error {
	if *f.to == nil {
		*f.to = source.RecordFlags{}
	}
	(*f.to)[f.name] = text
	return nil
}

// recordFlagNames returns the names of all flags of sources of records.
func recordFlagNames() (names []string) {
	for _, f := range source.AllRecordFlags {
		names = append(names, f.Name)
	}
	return names
}

// addSourceFlag adds a flag that names a source, and all flags that say how it is asked.
func addSourceFlag(flags *pflag.FlagSet, to *string, name, usage string, o *source.Remote) {
	flags.Var(&oneSource{to: to}, name, usage)
	addRemoteFlags(flags, o)
}

// oneSource is a source that may be given once. A second one would silently replace the first.
type oneSource struct {
	to    *string
	given bool
}

func (s *oneSource) Type() string   { return "string" }
func (s *oneSource) String() string { return *s.to }
func (s *oneSource) Set(text string) error {
	if s.given && text != *s.to {
		return errors.New("only one source is allowed: name several shards with one pattern, or give each source its own cache")
	}
	*s.to, s.given = text, true
	return nil
}

// addStreamFlag adds --stream, for commands that list a source.
func addStreamFlag(flags *pflag.FlagSet, to *bool) {
	flags.BoolVar(to, "stream", false, "read compressed shards and records from front to back")
}

// addRemoteFlags adds the flags of sources that are asked over a network.
func addRemoteFlags(flags *pflag.FlagSet, o *source.Remote) {
	flags.StringVar(&o.S3.Endpoint, "s3-endpoint-url", "", "`URL` of an S3 service other than AWS (default: $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL)")
	flags.StringVar(&o.S3.Region, "s3-region", "", "`REGION` of the bucket (default: from the AWS configuration)")
	on := func(which source.Switches, to *bool, name, usage string) {
		flags.Var(&toggle{to: to, given: &o.Given, which: which}, name, usage)
		flags.Lookup(name).NoOptDefVal = "true"
	}
	on(source.PathStyle, &o.S3.PathStyle, "s3-path-style", "put the bucket in the path, not in the host name")
	on(source.Unsigned, &o.S3.Unsigned, "s3-unsigned", "send no credentials, for a public bucket")
	flags.StringVar(&o.S3.Profile, "s3-profile", "", "profile `NAME` of the AWS configuration")
	on(source.RequesterPays, &o.S3.RequesterPays, "s3-requester-pays", "pay for requests to a requester-pays bucket")
	on(source.OtherHosts, &o.OtherHosts, "http-allow-other-hosts", "let a list of addresses name hosts other than its own")
	flags.Var(&toggle{&o.NoHedge, true, &o.Given, source.NoHedge}, "source-hedge", "send a slow request to a network source a second time")
	flags.Lookup("source-hedge").NoOptDefVal = "true"
}

// toggle is a switch that records whether it was given. A given value, also =false, has precedence over the cache's.
type toggle struct {
	to    *bool
	not   bool // the flag means the opposite
	given *source.Switches
	which source.Switches
}

func (c *toggle) Type() string   { return "bool" }
func (c *toggle) String() string { return strconv.FormatBool(c.to != nil && *c.to != c.not) }
func (c *toggle) Set(text string) error {
	on, err := strconv.ParseBool(text)
	*c.to, *c.given = on != c.not, *c.given|c.which
	return err
}

// addCacheFlag adds --cache for a command on one cache.
func addCacheFlag(flags *pflag.FlagSet, to *[]string) {
	flags.Var(dirs{to}, "cache", "cache directory; several for several SSDs")
}

// compressions are the values of --compress.
var compressions = []string{"auto", "lz4", "none"}

// needCache is an error unless a cache was given.
func needCache(cache []string) error {
	if len(cache) == 0 {
		return usagef("no cache: give --cache DIR, a directory on a local SSD")
	}
	return nil
}

// finishIO completes the options of I/O from the environment.
func finishIO(io *cache.IO) (err error) {
	io.Direct, err = directFromEnvironment(os.LookupEnv)
	return err
}
