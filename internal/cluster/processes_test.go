package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/testenv"
)

// memberVariable makes a process of this test a member of a cluster: "KEY WHERE NUMBER EXPECT".
const memberVariable = "LCACHE_TEST_MEMBER"

// memberProgram is a process with one member. It writes what it sees when that changes, and what it costs when it reads a line. It ends with its input.
func memberProgram() int {
	var key, where string
	var number uint16
	o := Options{Listen: "127.0.0.1:0", Host: "test"}
	if _, err := fmt.Sscan(os.Getenv(memberVariable), &key, &where, &number, &o.Expect); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var err error
	if o.Key, err = ReadKey(key); err == nil {
		o.Where, err = ParseWhere(where)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ask := make(chan bool)
	go func() {
		for in := bufio.NewReader(os.Stdin); ; ask <- true {
			if _, err := in.ReadString('\n'); err != nil {
				close(ask)
				return
			}
		}
	}()
	memory, goroutines := rssAnon(), runtime.NumGoroutine()
	m, err := Start(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	offer := Offer{Dataset: train, Weight: 100}
	binary.BigEndian.PutUint16(offer.Cache[:], number+1)
	if err := m.Offer(offer); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("listen", seedOf(m))
	views := make(chan *View)
	go func() { // a ticker would cost more than the member
		for v := m.Newer(context.Background(), nil); ; v = m.Newer(context.Background(), v) {
			views <- v
		}
	}()
	for last := ""; ; {
		select {
		case v := <-views:
			d, peers := v.Datasets[train], 0
			if d.Roster != nil {
				peers = len(d.Roster.Peers)
			}
			if now := fmt.Sprintln("sees", v.Members, peers); now != last {
				last = now
				fmt.Print(now)
			}
		case _, isAsked := <-ask:
			if !isAsked { // the test is over, perhaps killed
				return 0
			}
			fmt.Println("costs", rssAnon()-memory, runtime.NumGoroutine()-goroutines)
		}
	}
}

// seedOf returns WHERE for others to find a member.
func seedOf(m *Member) string {
	host, port, _ := strings.Cut(m.View().Listen, ":")
	var n int
	fmt.Sscan(port, &n)
	return fmt.Sprintf("%s:%d", host, n-1)
}

// rssAnon returns the anonymous memory of this process, in bytes.
func rssAnon() int {
	b, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(b), "RssAnon:")
	n := 0
	fmt.Sscan(after, &n)
	return n << 10
}

// process is a member in a process of its own, as the test sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	seed   string
	events chan event
	last   event
}

// event is what a process has written, and when that was read.
type event struct {
	at             time.Time
	members, peers int
	memory, extra  int // of "costs": bytes, goroutines
}

// startProcess starts a member, and waits until it listens.
func startProcess(t *testing.T, key, where string, number, expect int) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self), events: make(chan event, 1000)}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", memberVariable, key, where, number, expect))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listens, read := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			e := event{at: time.Now()}
			text := lines.Text()
			if address, ok := strings.CutPrefix(text, "listen "); ok {
				listens <- address
			} else if n, _ := fmt.Sscanf(text, "sees %d %d", &e.members, &e.peers); n == 2 {
				p.events <- e
			} else if n, _ := fmt.Sscanf(text, "costs %d %d", &e.memory, &e.extra); n == 2 {
				p.events <- e
			}
		}
	}()
	t.Cleanup(func() {
		p.in.Close()
		p.cmd.Process.Kill()
		<-read
		p.cmd.Wait()
	})
	select {
	case p.seed = <-listens:
	case <-time.After(deadline):
		t.Fatal("a member does not listen")
	}
	return p
}

// until returns when the process first saw this many members, with a roster of this many peers. 0: any.
func (p *process) until(t *testing.T, members, peers int) time.Time {
	t.Helper()
	end := time.After(deadline)
	isSo := func() bool {
		return (members == 0 || p.last.members == members) && (peers == 0 || p.last.peers == peers)
	}
	for !isSo() {
		select {
		case e, ok := <-p.events:
			if !ok {
				t.Fatal("a member ended")
			}
			p.last = e
		case <-end:
			t.Fatalf("after %v a member sees %d members and a roster of %d, want %d and %d", deadline, p.last.members, p.last.peers, members, peers)
		}
	}
	return p.last.at
}

// kill ends the process at once.
func (p *process) kill(t *testing.T) time.Time {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// costs returns the memory and the goroutines that the member takes in its process, and the CPU time of the process until now.
func (p *process) costs(t *testing.T) (bytes, goroutines int, cpu time.Duration) {
	t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		t.Fatal(err)
	}
	for end := time.After(deadline); ; {
		select {
		case e := <-p.events:
			if e.memory != 0 {
				return e.memory, e.extra, cpuOf(t, p.cmd.Process.Pid)
			}
		case <-end:
			t.Fatal("a member does not answer")
		}
	}
}

// cpuOf returns the CPU time of a process, in steps of 10 ms.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var user, system int64
	fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// onOneCore lets this goroutine start processes on one core only, until the function that it returns is called.
func onOneCore(t *testing.T) func() {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	}
}

func keyFile(t *testing.T) string { return write(t, t.TempDir()+"/key", NewKey(), 0o600) }

// report logs the median and the worst of some times, and fails if the worst is more than it may be.
func report(t *testing.T, what string, times []time.Duration, most time.Duration) {
	t.Helper()
	slices.Sort(times)
	median, worst := times[len(times)/2].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond)
	t.Logf("%s: median %v, worst %v of %d (limit %v)", what, median, worst, len(times), most)
	if testenv.Timed() && worst > most {
		t.Errorf("%s took %v, and may take %v", what, worst, most)
	}
}

// TestThreeProcesses: three processes form a cluster, and one that is killed is missed. Without LCACHE_IDLE it runs once, and asserts no times.
func TestThreeProcesses(t *testing.T) {
	t.Parallel()
	runs := 1
	if testenv.Timed() {
		runs = 20
	}
	var formed, missed []time.Duration
	key := keyFile(t)
	for range runs {
		first := startProcess(t, key, Listen, 0, 3)
		members := []*process{first, startProcess(t, key, first.seed, 1, 3)}
		members[1].until(t, 2, 0)
		began := time.Now()
		members = append(members, startProcess(t, key, first.seed, 2, 3))
		for _, p := range members {
			formed = append(formed, p.until(t, 3, 3).Sub(began))
		}
		died := members[2].kill(t)
		for _, p := range members[:2] {
			missed = append(missed, p.until(t, 2, 0).Sub(died))
		}
		for _, p := range members {
			p.in.Close()
		}
	}
	report(t, "a roster of three after the start of the last", formed, 1500*time.Millisecond)
	report(t, "a killed process is missed", missed, 6*time.Second)
}

// TestSixtyFourProcesses: 64 members on one core find each other, miss one that is killed, and cost little when nothing happens.
func TestSixtyFourProcesses(t *testing.T) {
	if !testenv.Timed() {
		t.Skip("skipped without LCACHE_IDLE: 64 processes take a core for a minute, and the test asserts times")
	}
	const n = 64
	key := keyFile(t)
	back := onOneCore(t)
	members := []*process{startProcess(t, key, Listen, 0, n)}
	for i := 1; i < n; i++ {
		if i == n-1 {
			back()
		}
		members = append(members, startProcess(t, key, members[0].seed, i, n))
	}
	began := time.Now()
	var seen, rosters, missed []time.Duration
	for _, p := range members {
		seen = append(seen, max(0, p.until(t, n, 0).Sub(began)))
	}
	for _, p := range members {
		rosters = append(rosters, max(0, p.until(t, n, n).Sub(began)))
	}
	report(t, "all 64 see all, after the start of the last", seen, 15*time.Second)
	report(t, "a roster of 64, after the start of the last", rosters, 15*time.Second)

	died := members[7].kill(t)
	others := slices.Delete(slices.Clone(members), 7, 8)
	for _, p := range others {
		missed = append(missed, p.until(t, n-1, 0).Sub(died))
	}
	report(t, "a death is seen by all 63", missed, 12*time.Second)

	const idle = 60 * time.Second
	before := map[*process]time.Duration{}
	for _, p := range others {
		before[p] = cpuOf(t, p.cmd.Process.Pid)
	}
	time.Sleep(idle) // nothing to wait for: the cost of doing nothing
	var busy []time.Duration
	var memory, goroutines []int
	for _, p := range others {
		bytes, extra, cpu := p.costs(t)
		busy, memory, goroutines = append(busy, cpu-before[p]), append(memory, bytes), append(goroutines, extra)
	}
	report(t, "CPU time of an idle member of 63 in a minute", busy, idle/200)
	slices.Sort(memory)
	slices.Sort(goroutines)
	t.Logf("an idle member of 63 takes: median %.1f MB, worst %.1f MB; %d goroutines", float64(memory[len(memory)/2])/1e6, float64(memory[len(memory)-1])/1e6, goroutines[len(goroutines)-1])
}

// TestIdleCost: what a member of three costs in a process where nothing happens.
func TestIdleCost(t *testing.T) {
	if !testenv.Timed() {
		t.Skip("skipped without LCACHE_IDLE: it measures for a minute")
	}
	key := keyFile(t)
	members := []*process{startProcess(t, key, Listen, 0, 3)}
	for i := 1; i < 3; i++ {
		members = append(members, startProcess(t, key, members[0].seed, i, 3))
	}
	for _, p := range members {
		p.until(t, 3, 3)
	}
	const idle = 60 * time.Second
	var before []time.Duration
	for _, p := range members {
		before = append(before, cpuOf(t, p.cmd.Process.Pid))
	}
	time.Sleep(idle) // nothing to wait for: the cost of doing nothing
	for i, p := range members {
		bytes, goroutines, cpu := p.costs(t)
		t.Logf("member %d of 3: %.1f MB of memory, %d goroutines, %v of CPU time in a minute", i, float64(bytes)/1e6, goroutines, cpu-before[i])
		if bytes > 20<<20 || cpu-before[i] > idle/200 {
			t.Errorf("member %d costs %d bytes and %v of CPU time, and may cost 20 MiB and %v", i, bytes, cpu-before[i], idle/200)
		}
	}
}
