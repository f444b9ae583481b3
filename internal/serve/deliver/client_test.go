package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"lcache/internal/serve/deliver"
	"lcache/sample"
)

// child is another process that lives until the test ends it.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	once  sync.Once
}

func newChild(t *testing.T) *child {
	t.Helper()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no other process to be a client: %v", err)
	}
	c := &child{cmd: cmd, stdin: stdin}
	t.Cleanup(c.kill)
	return c
}

func (c *child) pid() int { return c.cmd.Process.Pid }
func (c *child) exit()    { c.once.Do(func() { c.stdin.Close(); c.cmd.Wait() }) }
func (c *child) kill()    { c.once.Do(func() { c.cmd.Process.Kill(); c.cmd.Wait() }) }

// A lease outlives its connection and ends with its process, however the process ends.
func TestLeaseEndsWithTheProcess(t *testing.T) {
	for _, how := range []string{"exit", "kill -9"} {
		b := newBed(t, deliver.Options{})
		b.bring(0, 4)
		p := newChild(t)
		c := b.attach(p.pid())
		b.get(c, 0, 4)
		b.get(c, 7)
		c.Disconnected()
		if b.held() != 1 || b.Staging.SideUsed() == 0 || b.d.Held()[p.pid()] == 0 {
			t.Fatalf("%s: the end of a connection ended its leases: held %d times, %v", how, b.held(), b.d.Held())
		}
		if how == "exit" {
			p.exit()
		} else {
			p.kill()
		}
		b.untilFree()
		if b.d.Connected() != 0 || len(b.d.Held()) != 0 {
			t.Errorf("%s: %d sessions, %v held", how, b.d.Connected(), b.d.Held())
		}
		c.Release(1, 2) // of a session that has ended
		c.Disconnected()
		if _, err := c.Get(context.Background(), []sample.Index{0}, nil); !errors.Is(err, deliver.ErrClosing) {
			t.Errorf("%s: a session that is over was served: %v", how, err)
		}
		if b.held() != 0 {
			t.Errorf("%s: a session that is over holds a slot", how)
		}
	}
}

// A process continues its session with the token. No other process can.
func TestToken(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.bring(0)
	p, q := newChild(t), newChild(t)
	c := b.attach(p.pid())
	batch := b.get(c, 0)
	c.Disconnected()
	again, err := b.d.Attach(p.pid(), c.Token)
	if err != nil || again != c {
		t.Errorf("with its token: %v, the same session %v", err, again == c)
	}
	thief, err := b.d.Attach(q.pid(), c.Token)
	if err != nil || thief == c || thief.Token == c.Token {
		t.Errorf("another process with the token: %v, the same session %v", err, thief == c)
	}
	thief.Release(batch.Lease)
	if b.held() != 1 {
		t.Error("another session's lease was released")
	}
	for _, token := range []string{"", "0123456789abcdef", c.Token + "0"} {
		if other, err := b.d.Attach(p.pid(), token); err != nil || other == c || other.Token == c.Token {
			t.Errorf("token %q: %v, the same session %v", token, err, other == c)
		}
	}
	c.Release(batch.Lease)
	b.untilFree()
	p.exit()
	q.exit()
}

// A session ends when its last connection has ended and it holds no batch. Its token is invalid from then on.
func TestDisconnected(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.bring(0)
	c := b.attach(os.Getpid())
	again, err := b.d.Attach(os.Getpid(), c.Token)
	if err != nil || again != c {
		t.Fatalf("a second connection: %v", err)
	}
	c.Disconnected()
	batch := b.get(c, 0) // through the other connection
	c.Release(batch.Lease)
	c.Disconnected()
	if b.d.Connected() != 0 {
		t.Errorf("%d sessions are left", b.d.Connected())
	}
	other, err := b.d.Attach(os.Getpid(), c.Token)
	if err != nil || other == c {
		t.Errorf("the token of a session that is over: %v, the same %v", err, other == c)
	}
}

func TestAttachToNoProcess(t *testing.T) {
	b := newBed(t, deliver.Options{})
	p := newChild(t)
	p.exit() // the process was waited for, so it no longer exists
	if c, err := b.d.Attach(p.pid(), ""); err == nil {
		t.Errorf("a session of an ended process: %+v", c)
	}
	if b.d.Connected() != 0 {
		t.Error("it is counted")
	}
}

// A process that dies while it waits gets nothing.
func TestProcessDiesWhileItWaits(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.set(4, deliver.Loading)
	p := newChild(t)
	c := b.attach(p.pid())
	done := make(chan error, 1)
	go func() {
		_, err := c.Get(context.Background(), []sample.Index{4}, nil)
		done <- err
	}()
	for b.d.Stats.Stall.Total() == 0 {
		b.Staging.Notify()
	}
	p.kill()
	for b.d.Connected() > 0 {
		b.Staging.Notify()
	}
	b.bring(4)
	if err := <-done; !errors.Is(err, deliver.ErrClosing) {
		t.Errorf("got %v", err)
	}
	if b.held() != 0 {
		t.Error("the dead hold a slot")
	}
}

// Sessions and processes come and go in any order, so descriptors and numbers are reused. A lease ends only with its
// own process.
func TestManyClientsComeAndGo(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.bring(0, 4, 5)
	r := rand.New(rand.NewPCG(1, 1))
	type session struct {
		p *child
		c *deliver.Client
	}
	var alive []session
	for range 120 {
		switch n := len(alive); {
		case n < 3 || r.IntN(2) == 0 && n < 12:
			p := newChild(t)
			c := b.attach(p.pid())
			b.get(c, 0)
			alive = append(alive, session{p, c})
			// A client that comes and goes without a lease frees its descriptor for the next client.
			b.attach(os.Getpid()).Disconnected()
		default:
			k := r.IntN(n)
			s := alive[k]
			alive = append(alive[:k], alive[k+1:]...)
			s.c.Disconnected()
			s.p.kill()
		}
		for b.held() > len(alive) {
			changed := b.Staging.Changed()
			if b.held() > len(alive) {
				<-changed
			}
		}
		if b.held() != len(alive) {
			t.Fatalf("%d leases are left of %d processes alive", b.held(), len(alive))
		}
	}
	for _, s := range alive {
		s.p.kill()
	}
	b.untilFree()
	if b.d.Connected() != 0 {
		t.Errorf("%d sessions are left", b.d.Connected())
	}
}

// Many sessions send requests, release and end at the same time.
func TestConcurrentClients(t *testing.T) {
	b := newBed(t, deliver.Options{})
	b.bring(0, 4, 5, 9)
	var wg sync.WaitGroup
	for g := range 6 { // each holds one batch while it requests the next: side memory has room for that
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 4))
			for range 25 {
				c, err := b.d.Attach(os.Getpid(), "")
				if err != nil {
					t.Error(err)
					return
				}
				last := uint64(0)
				for range 3 {
					batch, err := c.Get(context.Background(), []sample.Index{[]sample.Index{0, 4, 5, 9}[r.IntN(4)], sample.Index(r.IntN(len(sizes)))}, nil)
					if err != nil {
						t.Error(err)
						return
					}
					for k, i := range batch.Indices {
						if sizes[i] > 0 {
							b.Is(i, b.Staging.Slice(batch.Offsets[k], int(sizes[i])))
						}
					}
					c.Release(last)
					last = batch.Lease
				}
				c.Release(last)
				c.Disconnected()
			}
		})
	}
	wg.Wait()
	b.untilFree()
	if b.d.Connected() != 0 || len(b.d.Held()) != 0 {
		t.Errorf("%d sessions, %v held", b.d.Connected(), b.d.Held())
	}
}

// Empty batches take no shared memory, but a session may hold only a limited number of them.
func TestLeasesHaveALimit(t *testing.T) {
	b := newBed(t, deliver.Options{})
	c := b.attach(os.Getpid())
	const most = 1 << 16
	for range most {
		if _, err := c.Get(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	var bad *deliver.ArgumentError
	if _, err := c.Get(t.Context(), []sample.Index{7}, nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), fmt.Sprintf("holds %d batches", most)) {
		t.Errorf("request beyond the limit: got %v, want an error with the number of held batches", err)
	}
	if n := b.Staging.SideUsed(); n != 0 {
		t.Errorf("%d bytes of side memory are taken by a request that was refused", n)
	}
	c.Release(1)
	c.Release(b.get(c, 7).Lease)
	for lease := range uint64(most + 10) {
		c.Release(lease)
	}
}
