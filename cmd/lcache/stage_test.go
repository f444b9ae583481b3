package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/launch"
	"lcache/internal/usage"
	"lcache/source"
)

// stage is a machine as examples expect it: a shell with lcache, python and torchrun on its PATH, in a folder with a train.py. Absolute
// paths are moved below a folder of the test. Before a command line runs, stage makes the missing datasets, caches and servers that the
// line names.
type stage struct {
	t    *testing.T
	root string // what / of an example stands for
	env  []string
}

// trainer is the train.py of examples: it reads every sample of every source that the environment names, in the job's order if it has
// one, and holds each against what makeDataset wrote.
const trainer = `import os
import lcache

rank = int(os.environ.get("RANK", 0))
for name in [name for name in os.environ if name.startswith("LCACHE_SOCKET")]:
    with lcache.connect(os.environ[name]) as job:
        batches = job.epoch(0, rank=rank) if job.batch_size else [job.get(range(job.samples))]
        seen = 0
        for batch in batches:
            seen += len(batch.samples)
            for name, view in zip(batch.names, batch.samples):
                assert bytes(view) == name.encode() * 20, name
        assert seen >= job.samples // max(1, job.world), seen
`

// torchrun starts as many ranks as the real one would, with the variables that lcache reads.
const torchrun = `#!/bin/sh
world=1
case $1 in
--nproc-per-node) world=$2; shift 2;;
--nproc-per-node=*) world=${1#*=}; shift;;
esac
rank=0 children=
while [ $rank -lt $world ]; do
	WORLD_SIZE=$world LOCAL_WORLD_SIZE=$world RANK=$rank LOCAL_RANK=$rank python "$@" &
	children="$children $!" rank=$((rank + 1))
done
for child in $children; do
	wait $child || exit
done
`

func newStage(t *testing.T) *stage {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	dir := diskDir(t)
	s := &stage{t: t, root: filepath.Join(dir, "root")}
	bin, home, work := filepath.Join(dir, "bin"), filepath.Join(dir, "home"), filepath.Join(dir, "work")
	for _, d := range []string{s.root, bin, work, filepath.Join(home, "zsh"), filepath.Join(home, ".config/fish/completions"), filepath.Join(s.root, "run/user/1000")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := programDir()
	if err != nil {
		t.Fatal(err)
	}
	toolchain := filepath.Join(program, "go")
	demoSource.Do(func() { makeDataset(t, filepath.Join(toolchain, "src")) })
	scripts := map[string]string{
		"python":   "#!/bin/sh\nexec " + usage.ShellWord(python) + " \"$@\"\n",
		"torchrun": torchrun,
		"go":       "#!/bin/sh\necho " + usage.ShellWord(toolchain) + "\n", // lcache demo asks where its source is
	}
	if _, err := exec.LookPath("jq"); err != nil {
		scripts["jq"] = "#!/bin/sh\nexec python -m json.tool\n" // checks that its input is JSON, at least
	}
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	client, err := filepath.Abs("../../python")
	if err == nil {
		err = os.Symlink(client, filepath.Join(work, "python"))
	}
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(work, "train.py"), trainer)
	stateFile(t, work, "a.json", nil)
	stateFile(t, work, "b.json", nil)
	s.env = append(launch.ChildEnvironment(os.Environ()), "NO_COLOR=1", "HOME="+home, "XDG_RUNTIME_DIR="+dir, "XDG_CACHE_HOME="+filepath.Join(home, ".cache"), "PYTHONPATH="+client,
		"PATH="+bin+":"+program+":"+os.Getenv("PATH"), "PWD="+work,
		"LCACHE_NO_DEVICE=true", "LCACHE_TIME=1s") // doctor takes a minute to measure a device, and no test here needs the figures
	return s
}

// madeProgramDir is the folder that programDir made, for TestMain to remove; "": none.
var madeProgramDir string

// demoSource makes what lcache demo reads. It is one for all stages, as nothing changes it.
var demoSource sync.Once

// programDir is a folder in which the test's own binary is called lcache, and so is lcache, also for children whose environment is cleared.
var programDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lcache-test-")
	if err != nil {
		return "", err
	}
	madeProgramDir = dir
	self, err := os.Executable()
	if err != nil {
		return dir, err
	}
	path := filepath.Join(dir, "lcache")
	if os.Link(self, path) == nil {
		return dir, nil
	}
	body, err := os.ReadFile(self) // on another file system
	if err != nil {
		return dir, err
	}
	return dir, os.WriteFile(path, body, 0o755)
})

// absolute finds where an absolute path begins in a command line.
var absolute = regexp.MustCompile(`(^|[\s=,"']|[a-z]+:)(/[a-z])`)

// here is a command line with its absolute paths below the stage's root.
func (s *stage) here(line string) string {
	return absolute.ReplaceAllString(line, "${1}"+s.root+"${2}")
}

// parsedLine is the part of a command line that is lcache's.
type parsedLine struct {
	cmd   *cobra.Command
	words []string
}

// parseLine finds the command of a line and checks its flags and arguments, without running it.
func parseLine(line string) (p parsedLine, err error) {
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " | ") // to jq
	line, _, _ = strings.Cut(line, " > ")
	line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "source <("), ")")
	p.words = strings.Fields(line)
	for len(p.words) > 0 && strings.HasPrefix(p.words[0], "LCACHE_") {
		p.words = p.words[1:]
	}
	if len(p.words) == 0 || p.words[0] != "lcache" {
		return p, errors.New("not a command of lcache")
	}
	root := newRootCommand(&globals{progress: "auto"})
	root.InitDefaultHelpCmd()
	var rest []string
	if p.cmd, rest, err = root.Find(p.words[1:]); err != nil {
		return p, err
	}
	if p.cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return p, unknownCommand(root, rest[0])
	}
	p.cmd.InitDefaultHelpFlag()
	p.cmd.InitDefaultVersionFlag()
	if err = p.cmd.ParseFlags(rest); err == nil {
		err = p.cmd.ValidateArgs(p.cmd.Flags().Args())
	}
	return p, err
}

// values are the given values of a flag, without the NAME= of a source.
func (p parsedLine) values(flag string) (values []string) {
	for i, word := range p.words {
		value, ok := strings.CutPrefix(word, flag+"=")
		if word == flag && i+1 < len(p.words) {
			value, ok = p.words[i+1], true
		}
		if m := sourceName.FindStringSubmatch(value); m != nil {
			value = m[2]
		}
		if ok {
			values = append(values, value)
		}
		if word == "--" {
			break
		}
	}
	return values
}

// prepare makes the sources that a command line names, and the cache or the server that it needs and does not make.
func (s *stage) prepare(p parsedLine) {
	s.t.Helper()
	sources := append(p.values("--source"), p.values("--against")...)
	for _, dir := range sources {
		if !source.IsRemote(strings.Trim(dir, "'")) {
			s.dataset(dir)
		}
	}
	first := filepath.Join(s.root, "data/train")
	if len(sources) > 0 {
		first = sources[0]
	}
	caches := p.values("--cache")
	switch p.cmd.Name() {
	case "run":
		if len(sources) > 0 {
			caches = nil
		}
	case "serve", "bench", "verify":
	case "rm":
		caches = p.cmd.Flags().Args()
	case "stop":
		caches = nil
		s.server(nil, first)
	case "cluster":
		caches = nil
		s.server(nil, first, "--cluster listen")
	case "status":
		caches = nil
		if s.server(p.values("--socket"), first); len(p.values("--socket")) > 0 {
			return
		}
	case "demo":
		for _, dir := range p.values("--dir") {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				s.t.Fatal(err)
			}
		}
	case "ls":
		caches = nil
		for _, root := range p.cmd.Flags().Args() {
			caches = append(caches, filepath.Join(root, "train-8c1f02aa"))
		}
	default:
		caches = nil
	}
	for _, cache := range caches {
		s.cache(first, cache)
	}
}

func (s *stage) dataset(dir string) {
	s.t.Helper()
	if pattern, isTar := strings.CutPrefix(strings.Trim(dir, "'"), source.TarScheme); isTar {
		makeShards(s.t, pattern)
	} else if index, isRanges := strings.CutPrefix(strings.Trim(dir, "'"), "ranges:"); isRanges {
		writeFile(s.t, index, "shard\toffset\tlength\nrecords.bin\t0\t260\nrecords.bin\t260\t260\n")
		writeFile(s.t, filepath.Join(filepath.Dir(index), "records.bin"), strings.Repeat("records.bin/0", 20)+strings.Repeat("records.bin/1", 20)) // what train.py expects
	} else if kind, pattern, _ := strings.Cut(strings.Trim(dir, "'"), ":"); kind == "arrow" || kind == "parquet" {
		b, err := os.ReadFile("testdata/train." + kind)
		if err != nil {
			s.t.Fatal(err)
		}
		path := strings.Replace(pattern, "*", "0", 1)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			s.t.Fatal(err)
		}
		writeFile(s.t, path, string(b))
	} else if _, err := os.Stat(dir); err != nil {
		makeDataset(s.t, dir)
	}
}

// cache makes the cache that an example has from somewhere.
func (s *stage) cache(source, dirs string) {
	s.t.Helper()
	first, _, _ := strings.Cut(dirs, ",")
	if _, err := os.Stat(filepath.Join(first, "FORMAT")); err == nil {
		return
	}
	s.dataset(source)
	if _, errs, err := s.shell("lcache ingest --quiet --source " + source + " --cache " + dirs); err != nil {
		s.t.Fatalf("make the cache %s: %v: %s", dirs, err, errs)
	}
}

// server starts a server with these flags. It serves until the test ends, at the given socket or at its default one.
func (s *stage) server(socket []string, source string, flags ...string) {
	s.t.Helper()
	cache := filepath.Join(s.root, "nvme/train")
	if len(socket) > 0 {
		cache = filepath.Dir(socket[0])
		flags = append(flags, "--socket "+socket[0])
	}
	s.cache(source, cache)
	cmd, _ := s.command("exec lcache serve --quiet --cache " + cache + " " + strings.Join(flags, " "))
	stop := s.untilLine(cmd)
	s.t.Cleanup(func() {
		if err := stop(); err != nil {
			s.t.Errorf("the server of an example ended with %v", err)
		}
	})
}

func (s *stage) command(script string) (cmd *exec.Cmd, errs *bytes.Buffer) {
	// bash, for source <(…). With the trap, a TERM to the group ends the commands and not the shell.
	cmd = exec.Command("bash", "-e", "-o", "pipefail", "-c", "trap : TERM; fpath=(- ~/zsh)\n"+script)
	cmd.Dir, cmd.Env = filepath.Join(filepath.Dir(s.root), "work"), s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	errs = new(bytes.Buffer)
	cmd.Stderr = errs
	return cmd, errs
}

func (s *stage) shell(script string) (out, stderr string, err error) {
	cmd, errs := s.command(script)
	var buf bytes.Buffer
	cmd.Stdout = &buf
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	stuck := time.AfterFunc(2*time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stuck.Stop()
	err = cmd.Wait()
	return buf.String(), errs.String(), err
}

// untilLine starts a command that goes on until it is ended, and returns at its first line. stop ends it the clean way.
func (s *stage) untilLine(cmd *exec.Cmd) (stop func() error) {
	_, stop = s.firstLine(cmd)
	return stop
}

// firstLine is untilLine, and returns the line.
func (s *stage) firstLine(cmd *exec.Cmd) (line string, stop func() error) {
	s.t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	group := -cmd.Process.Pid
	stuck := time.AfterFunc(2*time.Minute, func() { syscall.Kill(group, syscall.SIGKILL) })
	lines := bufio.NewReader(out)
	line, lineErr := lines.ReadString('\n')
	return strings.TrimSpace(line), func() error {
		defer stuck.Stop()
		syscall.Kill(group, syscall.SIGTERM)
		io.Copy(io.Discard, lines)
		return errors.Join(lineErr, cmd.Wait())
	}
}

// run runs one line that a page or a help text shows. A line of its output that begins with "next: " is a command line too, and is run as well.
func (s *stage) run(line string) {
	s.t.Helper()
	p, err := parseLine(s.here(line))
	if err != nil {
		s.t.Errorf("%s: %v", line, err)
		return
	}
	s.prepare(p)
	watch := p.cmd.Flags().Lookup("watch")
	if p.cmd.Name() == "serve" || watch != nil && watch.Changed {
		cmd, errs := s.command(s.here(line))
		if err := s.untilLine(cmd)(); err != nil {
			s.t.Errorf("%s: %v\n%s", line, err, errs)
		}
		return
	}
	script := s.here(line)
	if strings.HasSuffix(script, "| head") {
		script += " || [ $? = 141 ]" // head has seen enough and leaves, so that lcache ends by SIGPIPE
	}
	out, errs, err := s.shell(script)
	if err != nil {
		s.t.Errorf("%s: %v\n%s%s", line, err, out, errs)
		return
	}
	for said := range strings.Lines(out) {
		next, ok := strings.CutPrefix(strings.TrimSpace(said), "next: ")
		if !ok {
			continue
		}
		if strings.Contains(next, " SRC ") || strings.Contains(next, " DIR ") { // words that the user replaces
			if _, err := parseLine(next); err != nil {
				s.t.Errorf("%s says %s, but: %v", line, next, err)
			}
			continue
		}
		if out, errs, err := s.shell(next); err != nil {
			s.t.Errorf("%s says %s, but: %v\n%s%s", line, next, err, out, errs)
		}
	}
}

// commandLines returns the lines of a shell text; a line that ends with a backslash is joined with the next one.
func commandLines(text string) []string {
	lines := strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" || strings.HasPrefix(line, "#") })
}
